#include "env/cpu/side.h"

#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>

#include "env/error.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// A page that a hostile process writes: text ends where it ends, at the latest at the buffer's end.
std::string BoundedText(const char* text, size_t limit) {
  return Printable(std::string_view(text, strnlen(text, limit)));
}

constexpr double kPollInterval_s = 0.05;  // how often a wait looks whether the process still lives

}  // namespace

WaitingProcess Side::Start(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                           bool namespaces, int processors) {
  WaitingProcess waiting;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(ExitCode::kBroken, std::string("cannot make a socket pair: ") + std::strerror(errno));
  }
  waiting.socket = Fd(pair[0]);
  const Fd theirs(pair[1]);
  waiting.handover_fd = CreateSharedFile("kevin-handover", sizeof(Handover));
  SealSize(waiting.handover_fd.get());
  waiting.handover = Mapping(waiting.handover_fd.get(), sizeof(Handover), Access::kReadWrite, true);
  waiting.log = CreateSharedFile("kevin-log", kLogBytes);
  SealSize(waiting.log.get());
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.environment = environment;
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}, {theirs.get(), kRunnerSocket}};
  spawn.namespaces = namespaces;
  spawn.processors = processors;
  waiting.process = Spawn(spawn);
  return waiting;
}

Side::Side(WaitingProcess waiting, const RunnerLoad& load, int inputs_fd, int outputs_fd, int library_fd)
    : waiting_(std::move(waiting)) {
  const int descriptors[kLoadDescriptors] = {waiting_.handover_fd.get(), inputs_fd, outputs_fd, library_fd,
                                             waiting_.log.get()};
  SendLoad(waiting_.socket.get(), load, descriptors);
}

SideEnd Side::Ended(double timeout_s, const std::string& when) {
  int status = 0;
  if (!waiting_.process.Wait(0, &status)) {
    waiting_.process.Kill();
    return {SideEnd::Kind::kTimedOut,
            when + " took longer than " + std::to_string(static_cast<int>(timeout_s)) + " s"};
  }
  return {SideEnd::Kind::kCrashed, DescribeStatus(status) + " " + when};
}

// The runner says so on its socket, which it then closes: unlike the page, the candidate cannot reach it.
bool Side::CandidateMayHaveRun() {
  char byte = 0;
  loading_ = loading_ || recv(waiting_.socket.get(), &byte, 1, MSG_DONTWAIT) == 1;
  return loading_;
}

std::optional<SideEnd> Side::WaitReady(double timeout_s) {
  const auto start = Clock::now();
  for (;;) {
    const uint32_t state = page()->state.load(std::memory_order_acquire);
    if (state == static_cast<uint32_t>(HandoverState::kReady)) return std::nullopt;
    if (state == static_cast<uint32_t>(HandoverState::kLoadFailed)) {
      return SideEnd{SideEnd::Kind::kLoadFailed, BoundedText(page()->message, sizeof(page()->message))};
    }
    int status = 0;
    const bool ended = waiting_.process.Wait(0, &status);
    if (ended && !CandidateMayHaveRun()) {
      throw Error(ExitCode::kBroken,
                  "the runner " + DescribeStatus(status) + " before it loaded anything: " + Log(),
                  "run `kevin doctor`");
    }
    if (ended) return SideEnd{SideEnd::Kind::kCrashed, DescribeStatus(status)};
    if (MicrosecondsSince(start) > timeout_s * 1e6) return Ended(timeout_s, "loading");
    FutexWaitWhile(&page()->state, state, kPollInterval_s / 10);
  }
}

std::optional<SideEnd> Side::Go(HandoverCommand command, double timeout_s, const std::function<void()>& watch,
                                double* total_us) {
  Handover* h = page();
  h->command = command;
  h->returned.store(0, std::memory_order_relaxed);
  const uint32_t before = generation_++;
  h->done.store(before, std::memory_order_relaxed);
  const auto start = Clock::now();
  h->go.store(generation_, std::memory_order_release);
  FutexWake(&h->go);
  if (watch) watch();
  while (!FutexWaitWhile(&h->done, before, kPollInterval_s)) {
    int status = 0;
    if (waiting_.process.Wait(0, &status)) {
      return SideEnd{SideEnd::Kind::kCrashed, DescribeStatus(status)};
    }
    if (MicrosecondsSince(start) > timeout_s * 1e6) return Ended(timeout_s, "a call");
  }
  *total_us = MicrosecondsSince(start);
  if (h->done.load(std::memory_order_acquire) != generation_) {
    return SideEnd{SideEnd::Kind::kCrashed, "the hand-over page was overwritten"};
  }
  return std::nullopt;
}

std::optional<SideEnd> Side::RunBatch(std::span<const uint16_t> slots, double timeout_s, double* total_us,
                                      const std::function<void()>& watch) {
  page()->calls = static_cast<uint32_t>(slots.size());
  std::copy(slots.begin(), slots.end(), page()->slot);
  return Go(HandoverCommand::kRun, timeout_s, watch, total_us);
}

std::optional<SideEnd> Side::Publish(double timeout_s) {
  double ignored_us = 0;
  return Go(HandoverCommand::kPublish, timeout_s, {}, &ignored_us);
}

double Side::CpuSeconds() const {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(waiting_.process.pid(), &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string Side::Log() const {
  const Mapping log(waiting_.log.get(), kLogBytes, Access::kReadOnly, false);
  return BoundedText(reinterpret_cast<const char*>(log.data()), kLogBytes);
}

}  // namespace kevin
