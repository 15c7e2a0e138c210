#pragma once
// One connection of the server: bytes in and out under the limits of HttpServerOptions. A client that is slow,
// silent or sends without end loses the connection, whatever it has sent.

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "policies/local/serve/model_options.h"

namespace kevin::local {

// Bytes of bodies that all connections hold together.
class BodyBudget {
 public:
  explicit BodyBudget(size_t most) : most_(most) {}
  bool Take(size_t bytes);  // false: there is no room
  void GiveBack(size_t bytes) { taken_ -= bytes; }
  size_t taken() const { return taken_; }

 private:
  const size_t most_;
  std::atomic<size_t> taken_{0};
};

// Not thread-safe: its thread alone uses it. Closes the socket at the end.
class Connection : public httplib::Stream {
 public:
  // Why the client gets no further bytes through.
  enum class Limit { kNone, kSlow, kHeaderBytes, kBodyBytes, kNoRoom };

  // Reading stops when `ending` is true. The references must outlive this.
  Connection(socket_t socket, const HttpServerOptions& options, BodyBudget& budget,
             const std::atomic<bool>& ending);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for the first byte of a request, or the client's end, while `stay` says so.
  template <typename Stay>
  bool WaitForRequest(const Stay& stay);
  void BeginHeaders();  // the time and the bytes of the headers count from now
  void BeginBody();     // those of the body
  void EndRequest();    // the bytes of the body were given up
  // No further request: its body was not read, or where it ends is not known.
  void CloseAfterReply() { closes_ = true; }
  bool closes() const { return closes_; }
  bool reads_body() const { return reads_body_; }
  Limit limit() const { return limit_; }

  bool is_readable() const override;
  // False once the client has hung up.
  bool is_writable() const override;
  ssize_t read(char* bytes, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }
  // Newer versions of cpp-httplib ask for these.
  virtual bool wait_readable() const { return is_readable(); }
  virtual bool wait_writable() const { return is_writable(); }
  virtual time_t duration() const;
  virtual void set_read_timeout(time_t, time_t = 0) {}

 private:
  using Clock = std::chrono::steady_clock;
  bool HasBytes(std::chrono::milliseconds patience) const;
  bool Fill();  // false: nothing more comes in time
  bool Count(size_t bytes);
  ssize_t Fail(Limit limit);

  const socket_t socket_;
  const HttpServerOptions& options_;
  BodyBudget& budget_;
  const std::atomic<bool>& ending_;
  const Clock::time_point begun_ = Clock::now();
  Clock::time_point read_until_;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;                // what lies in buffer_ unread
  size_t header_bytes_ = 0, body_bytes_ = 0;  // of this request
  bool reads_body_ = false, closes_ = false;
  Limit limit_ = Limit::kNone;
};

template <typename Stay>
bool Connection::WaitForRequest(const Stay& stay) {
  constexpr std::chrono::milliseconds kLook{50};
  while (!closes_ && stay()) {
    if (HasBytes(kLook)) return true;
  }
  return false;
}

}  // namespace kevin::local
