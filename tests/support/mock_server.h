#pragma once
// A small HTTP/1.1 server in this process, for tests and benchmarks of API clients: on a port of 127.0.0.1 or
// on a Unix socket, with one thread per connection and persistent connections. A function computes the
// answers; it may add pauses, close the connection early or leave it silent.

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace kevin {

struct MockRequest {
  int number = 0;  // of the server, from 1
  std::string method, path;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct MockReply {
  enum class End { kWhole, kCut, kSilence };
  struct Piece {
    double pause_s = 0;  // before it
    std::string bytes;
  };
  int status = 200;
  std::vector<std::string> headers;  // "name: value"
  std::vector<Piece> pieces;         // of the body, each sent by itself
  End end = End::kWhole;  // kCut: the connection closes without the end mark; kSilence: it stays open
};

class MockServer {
 public:
  // `answer` is called on the connections' threads.
  using Answer = std::function<MockReply(const MockRequest&)>;
  explicit MockServer(Answer answer, const std::filesystem::path& unix_socket = {});
  ~MockServer();  // ends all connections, silent ones too
  MockServer(const MockServer&) = delete;
  MockServer& operator=(const MockServer&) = delete;

  std::string Url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  int requests() const { return requests_; }
  int connections() const { return connections_; }

 private:
  void Accept();
  void Serve(int socket);
  bool Send(int socket, const MockReply& reply);
  bool Pause(double seconds);  // false: the server ends

  const Answer answer_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> requests_{0}, connections_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::set<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace kevin
