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

namespace kevin::local {

namespace {

// A thread for each open connection, started when needed and kept for the next one; cpp-httplib's work queue.
class ConnectionThreads {
 public:
  explicit ConnectionThreads(int most) : most_(static_cast<size_t>(most)) {}
  ~ConnectionThreads() { Finish(); }
  // Waits while `most` are busy.
  void Run(std::function<void()> work);
  void Finish();

 private:
  void Work();

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  size_t busy_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

void ConnectionThreads::Run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return busy_ < most_ || ending_; });
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
constexpr int kBacklog = 1024;
constexpr int kHttpPort = 80;  // cpp-httplib requires a port with a Unix socket

// Newer versions of cpp-httplib expect whether the work was accepted.
class Queue : public httplib::TaskQueue {
 public:
  explicit Queue(int connections) : threads_(connections) {}
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

Reply NotTaken(int status) {
  const bool is_large = status == 413;
  Reply reply;
  reply.body = ApiError(status, is_large ? "the request is too large" : "the request could not be understood")
                   .Body()
                   .dump();
  return reply;
}

}  // namespace

class HttpServer::Listener : private httplib::Server {
 public:
  Listener(ModelApi& api, const HttpServerOptions& options) : api_(api), options_(options) {
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
  std::string Url() const {
    return options_.unix_socket.empty() ? fmt::format("http://{}:{}/v1", options_.host, port_)
                                        : "unix:" + options_.unix_socket;
  }

 private:
  void SetUp() {
    new_task_queue = [this] { return new Queue(options_.connections); };
    set_payload_max_length(options_.body_bytes);
    set_keep_alive_max_count(1000000);
    set_keep_alive_timeout(30);
    set_read_timeout(30);
    set_write_timeout(30);
    set_tcp_nodelay(options_.unix_socket.empty());
    const auto handler = [this](const httplib::Request& request, httplib::Response& response) {
      Put(api_.Answer(request.method, request.path, request.body), &response);
    };
    Get(".*", handler);
    Post(".*", handler);
    set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty()) response.set_content(NotTaken(response.status).body, "application/json");
    });
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
  int port_ = 0;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

HttpServer::HttpServer(ModelApi& api, const HttpServerOptions& options)
    : listener_(std::make_unique<Listener>(api, options)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return listener_->port(); }

std::string HttpServer::Url() const { return listener_->Url(); }

}  // namespace kevin::local
