#include "tests/support/mock_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <chrono>
#include <cstring>
#include <optional>

#include "env/error.h"

namespace kevin {
namespace {

[[noreturn]] void ThrowErrno(const char* what) {
  throw Error(ExitCode::kBroken, fmt::format("mock server: {}: {}", what, std::strerror(errno)));
}

bool WriteAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// Reads until `bytes` holds `enough` characters; false when the other side has gone.
bool ReadMore(int socket, std::string* bytes) {
  std::array<char, 1 << 16> buffer;
  const ssize_t got = recv(socket, buffer.data(), buffer.size(), 0);
  if (got <= 0) return false;
  bytes->append(buffer.data(), static_cast<size_t>(got));
  return true;
}

void ReadHead(const std::string& head, MockRequest* request) {
  size_t line = 0;
  for (size_t end = head.find("\r\n"); line < head.size(); line = end + 2, end = head.find("\r\n", line)) {
    const std::string text = head.substr(line, end - line);
    if (line == 0) {
      const size_t space = text.find(' ');
      request->method = text.substr(0, space);
      request->path = text.substr(space + 1, text.rfind(' ') - space - 1);
    } else if (const size_t colon = text.find(':'); colon != std::string::npos) {
      std::string name = text.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      request->headers[name] = text.substr(text.find_first_not_of(' ', colon + 1));
    }
    if (end == std::string::npos) break;
  }
}

// The next request on the connection; `left` holds what was read beyond the one before.
std::optional<MockRequest> ReadRequest(int socket, std::string* left) {
  size_t end = 0;
  while ((end = left->find("\r\n\r\n")) == std::string::npos) {
    if (!ReadMore(socket, left)) return std::nullopt;
  }
  MockRequest request;
  ReadHead(left->substr(0, end), &request);
  const std::string length = request.headers["content-length"];
  const size_t whole = end + 4 + (length.empty() ? 0 : std::stoul(length));
  while (left->size() < whole) {
    if (!ReadMore(socket, left)) return std::nullopt;
  }
  request.body = left->substr(end + 4, whole - end - 4);
  left->erase(0, whole);
  return request;
}

}  // namespace

MockServer::MockServer(Answer answer, const std::filesystem::path& unix_socket) : answer_(std::move(answer)) {
  listener_ = socket(unix_socket.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un local{};
  sockaddr_in internet{};
  internet.sin_family = AF_INET;
  internet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = reinterpret_cast<sockaddr*>(&internet);
  socklen_t size = sizeof internet;
  if (!unix_socket.empty()) {
    local.sun_family = AF_UNIX;
    std::strncpy(local.sun_path, unix_socket.c_str(), sizeof local.sun_path - 1);
    address = reinterpret_cast<sockaddr*>(&local);
    size = sizeof local;
  }
  if (bind(listener_, address, size) != 0) ThrowErrno("bind");
  if (listen(listener_, 1024) != 0) ThrowErrno("listen");
  getsockname(listener_, address, &size);
  if (unix_socket.empty()) port_ = ntohs(internet.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

MockServer::~MockServer() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
    wake_.notify_all();
  }
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
}

void MockServer::Accept() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard lock(mutex_);
    if (ending_ || socket < 0) {
      if (socket >= 0) close(socket);
      return;
    }
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockets_.insert(socket);
    ++connections_;
    threads_.emplace_back([this, socket] { Serve(socket); });
  }
}

void MockServer::Serve(int socket) {
  std::string left;
  while (auto request = ReadRequest(socket, &left)) {
    request->number = ++requests_;
    if (!Send(socket, answer_(*request))) break;
  }
  const std::lock_guard lock(mutex_);
  sockets_.erase(socket);
  close(socket);
}

bool MockServer::Send(int socket, const MockReply& reply) {
  std::string head = fmt::format("HTTP/1.1 {} Mock\r\ntransfer-encoding: chunked\r\n", reply.status);
  for (const std::string& header : reply.headers) head += header + "\r\n";
  if (!WriteAll(socket, head + "\r\n")) return false;
  for (const MockReply::Piece& piece : reply.pieces) {
    if (piece.pause_s > 0 && !Pause(piece.pause_s)) return false;
    if (piece.bytes.empty()) continue;
    if (!WriteAll(socket, fmt::format("{:x}\r\n{}\r\n", piece.bytes.size(), piece.bytes))) return false;
  }
  if (reply.end == MockReply::End::kSilence) Pause(1e6);
  return reply.end == MockReply::End::kWhole && WriteAll(socket, "0\r\n\r\n");
}

bool MockServer::Pause(double seconds) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ending_; });
  return !ending_;
}

}  // namespace kevin
