#include "policies/local/train/split_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "env/error.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  throw Error(ExitCode::kBroken, "the ranks that sample together: " + what + ": " + std::strerror(errno),
              "start all ranks again with --resume");
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    throw Error(ExitCode::kBadRequest, "the path of a socket is too long: " + path,
                "set TMPDIR to a shorter folder");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Socket NewSocket() {
  Socket made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (made.get() < 0) Fail("no socket");
  return made;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

Socket::~Socket() {
  if (file_ >= 0) close(file_);
}

SplitLink::SplitLink(const std::string& path) : path_(path), listener_(NewSocket()) {
  const sockaddr_un address = AddressOf(path);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0)
    Fail(path);
}

SplitLink::~SplitLink() {
  End("");
  unlink(path_.c_str());
}

void SplitLink::Accept(int ranks, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (static_cast<int>(followers_.size()) < ranks - 1) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) == 0) {
      errno = ETIMEDOUT;
      Fail("a rank does not come");
    }
    Socket socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto hello = socket.get() < 0 ? std::nullopt : ReadFrame(socket.get());
    if (hello) followers_.push_back({hello->at("rank").get<int>(), std::move(socket)});
  }
}

void SplitLink::Tell(const nlohmann::json& command) {
  const std::lock_guard lock(mutex_);
  for (const Follower& follower : followers_) {
    if (!WriteFrame(follower.socket.get(), command))
      throw LostRank(0, "rank " + std::to_string(follower.rank) + ": it samples no more");
  }
}

void SplitLink::End(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_ended_, true)) return;
  for (const Follower& follower : followers_) WriteFrame(follower.socket.get(), {{"end", why}});
}

Socket ConnectToFirst(const std::string& path, int rank) {
  Socket made = NewSocket();
  const sockaddr_un address = AddressOf(path);
  if (connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Fail(path);
  WriteFrame(made.get(), {{"rank", rank}});
  return made;
}

std::vector<uint8_t> PackSteps(std::span<const SequenceStep> steps) {
  std::vector<int32_t> numbers = {static_cast<int32_t>(steps.size())};
  for (const SequenceStep& step : steps) {
    numbers.push_back(step.position);
    numbers.push_back(static_cast<int32_t>(step.tokens.size()));
    numbers.push_back(static_cast<int32_t>(step.pages.size()));
  }
  for (const SequenceStep& step : steps) {
    numbers.insert(numbers.end(), step.tokens.begin(), step.tokens.end());
    numbers.insert(numbers.end(), step.pages.begin(), step.pages.end());
  }
  std::vector<uint8_t> bytes(numbers.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

UnpackedSteps::UnpackedSteps(std::span<const uint8_t> bytes) : numbers_(bytes.size() / sizeof(int32_t)) {
  std::memcpy(numbers_.data(), bytes.data(), numbers_.size() * sizeof(int32_t));
  const size_t count = numbers_.empty() ? 0 : static_cast<size_t>(numbers_[0]);
  const std::span<const int32_t> all(numbers_);
  size_t next = 1 + 3 * count;
  const auto take = [&](size_t size) {
    if (next + size > all.size())
      throw Error(ExitCode::kBroken, "the stream between ranks that sample together is garbled");
    next += size;
    return all.subspan(next - size, size);
  };
  take(0);
  for (size_t i = 0; i < count; ++i) {
    SequenceStep step;
    step.position = all[1 + 3 * i];
    step.tokens = take(static_cast<size_t>(all[2 + 3 * i]));
    step.pages = take(static_cast<size_t>(all[3 + 3 * i]));
    steps_.push_back(step);
  }
}

}  // namespace kevin::local
