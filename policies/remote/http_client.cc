#include "policies/remote/http_client.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <mutex>

#include "env/error.h"

namespace kevin::remote {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 200;         // the longest delay of a cancellation
constexpr double kEndGraceS = 0.25;  // for the end of a response whose answer is complete
constexpr size_t kIdleConnections = 512;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// libcurl, loaded at the first request: its forty libraries would take longer to start than all the rest of a
// program.
struct CurlApi {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_reset) easy_reset;
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...);
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_cleanup) multi_cleanup;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_getdate) getdate;
};

[[noreturn]] void ThrowUnusable(const std::string& why) {
  throw Error(ExitCode::kMachine, "libcurl, which sends HTTP requests, is not usable: " + why,
              "install it: apt-get install libcurl4");
}

template <class Function>
void LoadFunction(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) ThrowUnusable(std::string("it lacks ") + name);
}

CurlApi LoadCurl() {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) ThrowUnusable(dlerror());
  CurlApi api{};
  LoadFunction(library, "curl_global_init", &api.global_init);
  LoadFunction(library, "curl_easy_init", &api.easy_init);
  LoadFunction(library, "curl_easy_cleanup", &api.easy_cleanup);
  LoadFunction(library, "curl_easy_reset", &api.easy_reset);
  LoadFunction(library, "curl_easy_setopt", &api.easy_setopt);
  LoadFunction(library, "curl_easy_strerror", &api.easy_strerror);
  LoadFunction(library, "curl_multi_init", &api.multi_init);
  LoadFunction(library, "curl_multi_cleanup", &api.multi_cleanup);
  LoadFunction(library, "curl_multi_add_handle", &api.multi_add_handle);
  LoadFunction(library, "curl_multi_remove_handle", &api.multi_remove_handle);
  LoadFunction(library, "curl_multi_perform", &api.multi_perform);
  LoadFunction(library, "curl_multi_poll", &api.multi_poll);
  LoadFunction(library, "curl_multi_info_read", &api.multi_info_read);
  LoadFunction(library, "curl_slist_append", &api.slist_append);
  LoadFunction(library, "curl_slist_free_all", &api.slist_free_all);
  LoadFunction(library, "curl_getdate", &api.getdate);
  if (api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) ThrowUnusable("it cannot be initialised");
  return api;
}

const CurlApi& Curl() {
  static const CurlApi api = LoadCurl();
  return api;
}

struct EasyDeleter {
  void operator()(CURL* handle) const { Curl().easy_cleanup(handle); }
};
struct MultiDeleter {
  void operator()(CURLM* handle) const { Curl().multi_cleanup(handle); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { Curl().slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, ListDeleter>;

HeaderList MakeList(const std::vector<std::string>& lines) {
  HeaderList list;
  for (const std::string& line : lines) {
    curl_slist* longer = Curl().slist_append(list.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    (void)list.release();
    list.reset(longer);
  }
  return list;
}

// The built-in path of libcurl is that of the system that built the program; this system's may differ.
std::string FindCaFile(const std::string& given) {
  if (!given.empty()) return given;
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  }
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return "";
}

Transport TransportOf(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return Transport::kDone;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return Transport::kUnreachable;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CERTPROBLEM:
      return Transport::kUntrusted;
    case CURLE_OPERATION_TIMEDOUT:
      return Transport::kTimedOut;
    default:
      return Transport::kBroken;
  }
}

}  // namespace

// A reusable connection: its multi handle keeps the socket open between requests.
struct Connection {
  std::unique_ptr<CURLM, MultiDeleter> multi{Curl().multi_init()};
  std::unique_ptr<CURL, EasyDeleter> easy{Curl().easy_init()};
};

struct HttpClient::Pool {
  std::unique_ptr<Connection> Take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Connection>();
    auto connection = std::move(idle.back());
    idle.pop_back();
    return connection;
  }
  void Return(std::unique_ptr<Connection> connection) {
    const std::lock_guard lock(mutex);
    if (idle.size() < kIdleConnections) idle.push_back(std::move(connection));
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<Connection>> idle;
};

namespace {

// One request on one connection.
class Transfer {
 public:
  Transfer(const HttpLimits& limits, const HttpRequest& request, const OnBody& on_body)
      : limits_(limits), request_(request), on_body_(on_body), headers_(MakeList(request.headers)) {}

  void SetUp(CURL* easy, const std::string& ca_file) {
    Curl().easy_reset(easy);
    Curl().easy_setopt(easy, CURLOPT_URL, request_.url.c_str());
    Curl().easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    Curl().easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
    Curl().easy_setopt(easy, CURLOPT_HTTPHEADER, headers_.get());
    Curl().easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect_s * 1e3));
    Curl().easy_setopt(easy, CURLOPT_ERRORBUFFER, error_);
    Curl().easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Transfer::OnBytes);
    Curl().easy_setopt(easy, CURLOPT_WRITEDATA, this);
    Curl().easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Transfer::OnHeader);
    Curl().easy_setopt(easy, CURLOPT_HEADERDATA, this);
    if (!request_.unix_socket.empty()) {
      Curl().easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request_.unix_socket.c_str());
      Curl().easy_setopt(easy, CURLOPT_PROXY, "");
    }
    if (!ca_file.empty()) Curl().easy_setopt(easy, CURLOPT_CAINFO, ca_file.c_str());
    if (request_.body) {
      Curl().easy_setopt(easy, CURLOPT_POST, 1L);
      Curl().easy_setopt(easy, CURLOPT_POSTFIELDS, request_.body->data());
      Curl().easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body->size()));
    }
  }

  HttpResponse Run(const Connection& connection, const CancelToken* cancel) {
    CURLM* const multi = connection.multi.get();
    Curl().multi_add_handle(multi, connection.easy.get());
    int running = 1;
    while (running > 0) {
      if (Curl().multi_perform(multi, &running) != CURLM_OK) {
        Stop(Transport::kBroken, "libcurl failed");
      }
      if (running > 0 && !stopped_) CheckLimits(cancel);
      if (stopped_ || thrown_) break;
      if (running > 0) Curl().multi_poll(multi, nullptr, 0, PollMs(), nullptr);
    }
    ReadResult(multi);
    Curl().multi_remove_handle(multi, connection.easy.get());
    if (thrown_) std::rethrow_exception(thrown_);
    response_.seconds = SecondsSince(start_);
    return std::move(response_);
  }

 private:
  int PollMs() const {
    if (enough_) return static_cast<int>(kEndGraceS * 1e3);
    const double left =
        std::min(limits_.stall_s - SecondsSince(progress_), limits_.total_s - SecondsSince(start_));
    return std::clamp(static_cast<int>(left * 1e3) + 1, 1, kPollMs);
  }

  void CheckLimits(const CancelToken* cancel) {
    if (cancel != nullptr && *cancel) return Stop(Transport::kCancelled, "cancelled");
    if (enough_ && SecondsSince(enough_at_) > kEndGraceS) return Stop(Transport::kEnough, "");
    if (SecondsSince(start_) > limits_.total_s)
      return Stop(Transport::kTimedOut, fmt::format("not done after {:.3g} s", limits_.total_s));
    if (SecondsSince(progress_) > limits_.stall_s)
      return Stop(Transport::kTimedOut, fmt::format("nothing new for {:.3g} s", limits_.stall_s));
  }

  void Stop(Transport transport, const std::string& error) {
    stopped_ = true;
    response_.transport = transport;
    response_.error = error;
  }

  void ReadResult(CURLM* multi) {
    int left = 0;
    while (const CURLMsg* message = Curl().multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE || stopped_) continue;
      const CURLcode code = message->data.result;
      response_.transport = enough_ ? Transport::kEnough : TransportOf(code);
      if (response_.transport == Transport::kDone || enough_) continue;
      response_.error = error_[0] != '\0' ? error_ : Curl().easy_strerror(code);
      if (too_long_) response_.error = "the response is too long";
    }
  }

  static size_t OnHeader(char* bytes, size_t, size_t count, void* self) {
    static_cast<Transfer*>(self)->TakeHeader({bytes, count});
    return count;
  }

  void TakeHeader(std::string_view line) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {
      response_.headers.clear();
      const size_t space = line.find(' ');
      if (space != std::string_view::npos)
        response_.status = std::atoi(std::string(line.substr(space + 1, 3)).c_str());
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    std::string name(line.substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    line.remove_prefix(colon + 1);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    response_.headers[name] = line;
  }

  static size_t OnBytes(char* bytes, size_t, size_t count, void* self) {
    return static_cast<Transfer*>(self)->TakeBody({bytes, count}) ? count : CURL_WRITEFUNC_ERROR;
  }

  // False ends the transfer.
  bool TakeBody(std::string_view piece) {
    too_long_ = response_.body.size() + piece.size() > limits_.response_bytes;
    if (too_long_) return false;
    response_.body += piece;
    if (enough_ || !on_body_) return true;
    try {
      const Reading reading = on_body_(response_, piece);
      if (reading != Reading::kNothingNew) progress_ = Clock::now();
      if (reading != Reading::kEnough) return true;
    } catch (...) {
      thrown_ = std::current_exception();
      return false;
    }
    enough_ = true;
    enough_at_ = Clock::now();
    return true;
  }

  const HttpLimits& limits_;
  const HttpRequest& request_;
  const OnBody& on_body_;
  const HeaderList headers_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point progress_ = start_, enough_at_ = start_;
  HttpResponse response_;
  std::exception_ptr thrown_;
  bool stopped_ = false, enough_ = false, too_long_ = false;
  char error_[CURL_ERROR_SIZE] = {};
};

}  // namespace

HttpClient::HttpClient(HttpLimits limits, std::string ca_file)
    : limits_(limits), ca_file_(FindCaFile(ca_file)), pool_(std::make_unique<Pool>()) {}

HttpClient::~HttpClient() = default;

HttpResponse HttpClient::Send(const HttpRequest& request, const CancelToken* cancel, const OnBody& on_body) {
  HttpRequest whole = request;
  whole.headers.push_back("expect:");  // long bodies are sent without waiting for status 100
  auto connection = pool_->Take();
  if (!connection->easy || !connection->multi) throw std::bad_alloc();
  Transfer transfer(limits_, whole, on_body);
  transfer.SetUp(connection->easy.get(), ca_file_);
  HttpResponse response = transfer.Run(*connection, cancel);
  if (response.transport == Transport::kDone || response.transport == Transport::kEnough)
    pool_->Return(std::move(connection));
  return response;
}

std::optional<double> SecondsUntil(const std::string& http_date) {
  const time_t date = Curl().getdate(http_date.c_str(), nullptr);
  if (date < 0) return std::nullopt;
  return std::max(0.0, std::difftime(date, std::time(nullptr)));
}

}  // namespace kevin::remote
