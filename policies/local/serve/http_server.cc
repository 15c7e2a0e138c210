#include "policies/local/serve/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "policies/local/serve/connection.h"
#include "policies/local/serve/request_gate.h"

namespace kevin::local {

namespace {

// A thread for each open connection, started when needed and kept for the next one; cpp-httplib's work queue.
class ConnectionThreads {
 public:
  // `waiting` counts the connections that wait for a place.
  ConnectionThreads(int most, std::atomic<int>& waiting)
      : most_(static_cast<size_t>(most)), waiting_(waiting) {}
  ~ConnectionThreads() { Finish(); }
  // Waits while `most` are busy.
  void Run(std::function<void()> work);
  void Finish();

 private:
  void Work();

  const size_t most_;
  std::atomic<int>& waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  size_t busy_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

void ConnectionThreads::Run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  wake_.wait(lock, [this] { return busy_ < most_ || ending_; });
  --waiting_;
  ++busy_;
  work_.push_back(std::move(work));
  if (busy_ > threads_.size()) threads_.emplace_back([this] { Work(); });
  wake_.notify_all();
}

void ConnectionThreads::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return !work_.empty() || ending_; });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
    --busy_;
    wake_.notify_all();
  }
}

void ConnectionThreads::Finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

constexpr double kLookS = 0.25;   // interval of checks for a closed connection, between two pieces
constexpr double kSilenceS = 15;  // without output, after which a keep-alive is sent
constexpr std::chrono::milliseconds kLeastIdle{200};  // before a place is given to another connection
constexpr int kBacklog = 1024;
constexpr int kHttpPort = 80;  // cpp-httplib requires a port with a Unix socket

// Newer versions of cpp-httplib expect whether the work was accepted.
class Queue : public httplib::TaskQueue {
 public:
  Queue(int connections, std::atomic<int>& waiting) : threads_(connections, waiting) {}
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::declval<std::function<void()>>()));
  Taken enqueue(std::function<void()> work) override {
    threads_.Run(std::move(work));
    return Taken(true);
  }
  void shutdown() override { threads_.Finish(); }

 private:
  ConnectionThreads threads_;
};

// A socket file without a listener is left over from a killed server.
void RemoveDeadSocket(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return;
  path.copy(address.sun_path, path.size());
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_dead = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
                       errno == ECONNREFUSED;
  close(probe);
  if (is_dead) unlink(path.c_str());
}

std::string BodyOf(const ApiError& error) {
  return error.Body().dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A request that could not be read.
ApiError NotTaken(Connection::Limit limit, int status) {
  switch (limit) {
    case Connection::Limit::kSlow:
      return ApiError(408, "the request did not arrive in time");
    case Connection::Limit::kHeaderBytes:
      return ApiError(431, "the headers are too large");
    case Connection::Limit::kBodyBytes:
      return ApiError(413, "the request is too large");
    case Connection::Limit::kNoRoom:
      return ApiError(503, "the requests in progress are too large together; try again later");
    case Connection::Limit::kNone:
      break;
  }
  return ApiError(status, status == 413 ? "the request is too large" : "the request could not be understood");
}

// The connection that this thread serves.
thread_local Connection* current_connection = nullptr;

}  // namespace

class HttpServer::Listener : private httplib::Server {
 public:
  Listener(ModelApi& api, const HttpServerOptions& options)
      : api_(api), options_(options), gate_(options_), budget_(options_.total_body_bytes) {
    SetUp();
    Bind();
    thread_ = std::thread([this] { listen_after_bind(); });
    while (!is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  ~Listener() override {
    ending_ = true;
    stop();
    thread_.join();
    if (!options_.unix_socket.empty()) unlink(options_.unix_socket.c_str());
  }

  int port() const { return port_; }
  const std::vector<std::string>& Warnings() const { return gate_.keys().warnings(); }
  std::string Url() const {
    return options_.unix_socket.empty() ? fmt::format("http://{}:{}/v1", options_.host, port_)
                                        : "unix:" + options_.unix_socket;
  }

 private:
  void SetUp() {
    new_task_queue = [this] { return new Queue(options_.connections, waiting_); };
    set_payload_max_length(options_.body_bytes);
    set_keep_alive_max_count(1000000);
    set_keep_alive_timeout(static_cast<time_t>(options_.idle_s));
    set_tcp_nodelay(options_.unix_socket.empty());
    const auto handler = [this](const httplib::Request& request, httplib::Response& response) {
      Put(api_.Answer(request.method, request.path, request.body), &response);
    };
    Get(".*", handler);
    Post(".*", handler);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return Enter(request, &response) ? HandlerResponse::Unhandled : HandlerResponse::Handled;
    });
    set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty()) Refuse(NotTaken(current_connection->limit(), response.status), &response);
    });
  }

  static void Refuse(const ApiError& error, httplib::Response* response) {
    response->status = error.status();
    response->set_content(BodyOf(error), "application/json");
    response->set_header("Connection", "close");
    if (error.status() == 401) response->set_header("WWW-Authenticate", "Bearer");
    if (error.status() == 503) response->set_header("Retry-After", "1");
    current_connection->CloseAfterReply();
  }

  // Called when the headers are complete. False: `response` is the reply, and the body is not read.
  bool Enter(const httplib::Request& request, httplib::Response* response) {
    const auto values = [&request](const char* name) {
      std::vector<std::string> found;
      const auto [first, last] = request.headers.equal_range(name);
      for (auto header = first; header != last; ++header) found.push_back(header->second);
      return found;
    };
    if (const auto refusal = gate_.Refusal({request.method, request.path, values})) {
      Refuse(*refusal, response);
      return false;
    }
    current_connection->BeginBody();
    const bool is_read = request.method == "POST";
    if (!is_read && (request.has_header("Content-Length") || request.has_header("Transfer-Encoding")))
      current_connection->CloseAfterReply();
    if (is_read || request.method == "GET" || request.method == "HEAD") return true;
    Put(api_.Answer(request.method, request.path, ""), response);
    current_connection->CloseAfterReply();
    return false;
  }

  // In place of cpp-httplib's own: with Connection's limits, and no further request after a refused one.
  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, options_, budget_, ending_);
    current_connection = &connection;
    while (connection.WaitForRequest([this, begun = Clock::now()] { return MayIdle(begun); })) {
      connection.BeginHeaders();
      bool is_closed = false;
      if (!Process(*this, connection, &is_closed) || is_closed || !connection.reads_body()) break;
      connection.EndRequest();
    }
    current_connection = nullptr;
    return true;
  }

  using Clock = std::chrono::steady_clock;
  bool MayIdle(Clock::time_point begun) const {
    const auto idle = Clock::now() - begun;
    return !ending_ && idle < std::chrono::duration<double>(options_.idle_s) &&
           (waiting_ == 0 || idle < kLeastIdle);
  }

  // Newer versions of cpp-httplib expect the addresses too.
  template <typename Server>
  static bool Process(Server& server, Connection& connection, bool* is_closed) {
    const std::function<void(httplib::Request&)> none;
    if constexpr (requires { server.process_request(connection, false, *is_closed, none); }) {
      return server.process_request(connection, false, *is_closed, none);
    } else {
      return server.process_request(connection, std::string(), 0, std::string(), 0, false, *is_closed, none);
    }
  }

  void Bind() {
    const bool is_unix = !options_.unix_socket.empty();
    errno = 0;
    bool bound = false;
    if (is_unix) {
      RemoveDeadSocket(options_.unix_socket);
      set_address_family(AF_UNIX);
      const mode_t before = umask(0077);
      bound = bind_to_port(options_.unix_socket, kHttpPort);
      umask(before);
    } else if (options_.port == 0) {
      port_ = bind_to_any_port(options_.host);
      bound = port_ > 0;
    } else {
      port_ = options_.port;
      bound = bind_to_port(options_.host, port_);
    }
    const std::string where =
        is_unix ? options_.unix_socket : fmt::format("{}:{}", options_.host, options_.port);
    if (!bound) {
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{}: cannot be listened on: {}", where, std::strerror(errno)),
                  "choose another address");
    }
    // cpp-httplib's backlog is 5; a sixth connection on a Unix socket would be refused.
    ::listen(svr_sock_, kBacklog);
  }

  void Put(Reply reply, httplib::Response* response) {
    response->status = reply.status;
    if (reply.in_progress == nullptr) return response->set_content(reply.body, reply.type);
    // Keep-alives: spaces before a JSON object, comments between events.
    const std::string sign_of_life = reply.type == "text/event-stream" ? ": waiting\n\n" : " ";
    if (reply.type == "text/event-stream") response->set_header("Cache-Control", "no-cache");
    response->set_chunked_content_provider(
        reply.type, [this, sign_of_life, in_progress = std::move(reply.in_progress), silence = 0.0](
                        size_t, httplib::DataSink& sink) mutable {
          std::optional<std::string> bytes = in_progress->Next(kLookS);
          if (!bytes) {
            sink.done();
            return true;
          }
          silence = bytes->empty() ? silence + kLookS : 0;
          if (silence >= kSilenceS) {
            bytes = sign_of_life;
            silence = 0;
          }
          if (ending_) return false;
          return bytes->empty() || sink.write(bytes->data(), bytes->size());
        });
  }

  ModelApi& api_;
  const HttpServerOptions options_;
  const RequestGate gate_;
  BodyBudget budget_;
  int port_ = 0;
  std::atomic<bool> ending_{false};
  std::atomic<int> waiting_{0};
  std::thread thread_;
};

HttpServer::HttpServer(ModelApi& api, const HttpServerOptions& options)
    : listener_(std::make_unique<Listener>(api, options)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return listener_->port(); }
const std::vector<std::string>& HttpServer::Warnings() const { return listener_->Warnings(); }

std::string HttpServer::Url() const { return listener_->Url(); }

}  // namespace kevin::local
