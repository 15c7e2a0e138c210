#include "policies/local/serve/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kevin::local {
namespace {

constexpr size_t kBufferBytes = 16 << 10;
constexpr std::chrono::milliseconds kEndLook{100};  // between looks at the end of the server

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Whether poll reports one of `events` in time.
bool Poll(socket_t socket, short events, std::chrono::milliseconds patience) {
  pollfd entry{socket, events, 0};
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    const int found = poll(&entry, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (found >= 0 || errno != EINTR) return found > 0;
  }
}

}  // namespace

bool BodyBudget::Take(size_t bytes) {
  size_t taken = taken_;
  do {
    if (bytes > most_ || taken > most_ - bytes) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + bytes));
  return true;
}

Connection::Connection(socket_t socket, const HttpServerOptions& options, BodyBudget& budget,
                       const std::atomic<bool>& ending)
    : socket_(socket), options_(options), budget_(budget), ending_(ending), buffer_(kBufferBytes) {
  BeginHeaders();
}

Connection::~Connection() {
  EndRequest();
  // What the client still sends would make the kernel throw away the reply: it gets a moment to read it.
  shutdown(socket_, SHUT_WR);
  const auto end = Clock::now() + Milliseconds(closes_ ? options_.linger_s : 0);
  while (!ending_ && Clock::now() < end &&
         Poll(socket_, POLLIN, std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()))) {
    if (recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) <= 0) break;
  }
  close(socket_);
}

void Connection::BeginHeaders() {
  EndRequest();
  header_bytes_ = 0;
  reads_body_ = false;
  read_until_ = Clock::now() + Milliseconds(options_.header_s);
}

void Connection::BeginBody() {
  reads_body_ = true;
  read_until_ = Clock::now() + Milliseconds(options_.body_s);
}

void Connection::EndRequest() {
  budget_.GiveBack(body_bytes_);
  body_bytes_ = 0;
}

time_t Connection::duration() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_).count();
}

bool Connection::HasBytes(std::chrono::milliseconds patience) const {
  return at_ < filled_ || Poll(socket_, POLLIN, patience);
}

bool Connection::is_readable() const { return HasBytes(std::chrono::milliseconds(0)); }

bool Connection::is_writable() const {
  char byte = 0;
  const ssize_t seen = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool is_open = seen > 0 || (seen < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
  return is_open && Poll(socket_, POLLOUT, Milliseconds(options_.write_s));
}

ssize_t Connection::Fail(Limit limit) {
  if (limit_ == Limit::kNone) limit_ = limit;
  closes_ = true;
  return -1;
}

bool Connection::Fill() {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(read_until_ - Clock::now());
    if (left.count() <= 0 || ending_) return Fail(Limit::kSlow) > 0;
    if (!Poll(socket_, POLLIN, std::min(left, kEndLook))) continue;
    const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
    at_ = 0, filled_ = static_cast<size_t>(std::max<ssize_t>(0, count));
    if (count <= 0) closes_ = true;
    return count > 0;
  }
}

bool Connection::Count(size_t bytes) {
  if (!reads_body_) {
    header_bytes_ += bytes;
    return header_bytes_ <= options_.header_bytes || Fail(Limit::kHeaderBytes) > 0;
  }
  if (body_bytes_ + bytes > options_.body_bytes) return Fail(Limit::kBodyBytes) > 0;
  if (!budget_.Take(bytes)) return Fail(Limit::kNoRoom) > 0;
  body_bytes_ += bytes;
  return true;
}

ssize_t Connection::read(char* bytes, size_t size) {
  if (limit_ != Limit::kNone) return -1;
  if (at_ == filled_ && !Fill()) return limit_ == Limit::kNone ? 0 : -1;
  if (Clock::now() > read_until_) return Fail(Limit::kSlow);
  const size_t count = std::min(size, filled_ - at_);
  if (!Count(count)) return -1;
  std::memcpy(bytes, buffer_.data() + at_, count);
  at_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* bytes, size_t size) {
  const auto end = Clock::now() + Milliseconds(options_.write_s);
  for (size_t sent = 0; sent < size;) {
    const ssize_t count = send(socket_, bytes + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<size_t>(count);
      continue;
    }
    const bool is_full = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (!is_full || left.count() <= 0 || !Poll(socket_, POLLOUT, left)) {
      closes_ = true;
      return -1;
    }
  }
  return static_cast<ssize_t>(size);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
void Connection::get_local_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }

}  // namespace kevin::local
