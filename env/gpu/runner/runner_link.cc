#include "env/gpu/runner/runner_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace kevin {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxDescriptors = 4;

bool SendAll(int socket, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(socket, data, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool ReceiveAll(int socket, char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = recv(socket, data, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

struct Header {
  uint64_t bytes = 0;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control{};
  iovec part{&bytes, sizeof(bytes)};
  msghdr message{};

  Header() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
  }
};

void TakeDescriptors(msghdr* message, std::vector<Fd>* descriptors) {
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      Fd owned(fd);
      if (descriptors) descriptors->push_back(std::move(owned));
    }
  }
}

bool WaitReadable(int socket, double timeout_s) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    int left_ms = -1;
    if (timeout_s >= 0) {
      left_ms =
          static_cast<int>(std::chrono::duration<double, std::milli>(deadline - Clock::now()).count()) + 1;
      if (left_ms <= 0) return false;
    }
    pollfd ready{socket, POLLIN, 0};
    const int n = poll(&ready, 1, left_ms);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

}  // namespace

bool SendFrame(int socket, const json& frame, std::span<const int> descriptors) {
  const std::string text = frame.dump(-1, ' ', false, json::error_handler_t::replace);
  Header header;
  header.bytes = text.size();
  if (!descriptors.empty()) {
    header.message.msg_control = header.control.data();
    header.message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header.message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t n = 0;
  while ((n = sendmsg(socket, &header.message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return n == sizeof(header.bytes) && SendAll(socket, text.data(), text.size());
}

std::optional<json> ReceiveFrame(int socket, double timeout_s, std::vector<Fd>* descriptors) {
  if (!WaitReadable(socket, timeout_s)) return std::nullopt;
  Header header;
  header.message.msg_control = header.control.data();
  header.message.msg_controllen = header.control.size();
  ssize_t n = 0;
  while ((n = recvmsg(socket, &header.message, MSG_CMSG_CLOEXEC | MSG_WAITALL)) < 0 && errno == EINTR) {
  }
  if (n != sizeof(header.bytes) || header.bytes > kMaxFrameBytes) return std::nullopt;
  TakeDescriptors(&header.message, descriptors);
  std::string text(header.bytes, '\0');
  if (!ReceiveAll(socket, text.data(), text.size())) return std::nullopt;
  json frame = json::parse(text, nullptr, false);
  if (frame.is_discarded()) return std::nullopt;
  return frame;
}

bool SendBytes(int socket, const void* data, size_t bytes) {
  return SendAll(socket, static_cast<const char*>(data), bytes);
}

bool AwaitBytes(int socket, double timeout_s, void* data, size_t bytes) {
  constexpr auto kSpin = std::chrono::milliseconds(20);
  const auto start = Clock::now();
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(socket, to, bytes, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n > 0) {
      to += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (Clock::now() - start > kSpin && !WaitReadable(socket, timeout_s)) {
      return false;
    }
  }
  return true;
}

}  // namespace kevin
