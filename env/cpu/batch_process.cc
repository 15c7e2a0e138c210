#include "env/cpu/batch_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <thread>

#include "env/error.h"
#include "env/problem/text.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// A hostile process can write the text: it ends at a zero byte or at the end of the buffer.
std::string BoundedText(const char* text, size_t limit) {
  return Printable(std::string_view(text, strnlen(text, limit)));
}

constexpr double kPollInterval_s = 0.05;  // between checks that the process still runs
constexpr double kStopTimeout_s = 5;
constexpr double kStopPoll_us = 300, kStopRepeat_us = 2000;
constexpr double kCpuClockRests_us = 60, kCpuClockTimeout_us = 20000;
constexpr double kMostSpin_us = 20000;

// Without sleeping: to be woken up takes tens of microseconds, now more and now less. Whether the word has another value.
bool SpinWhile(const std::atomic<uint32_t>& word, uint32_t value, double at_most_us) {
  const auto start = Clock::now();
  while (word.load(std::memory_order_acquire) == value) {
    if (MicrosecondsSince(start) > at_most_us) return false;
    for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
  }
  return true;
}

// A mapping of memory that Kevin has made, by /proc/PID/smaps.
struct NamedMapping {
  std::string name;  // "kevin-inputs"
  int64_t offset = 0, bytes = 0, resident = 0, marked = 0;
};

// nullopt: none is shown, or there are more mappings than `most`, others included.
std::optional<std::vector<NamedMapping>> MappingsOf(pid_t pid, size_t most) {
  static constexpr const char* kName = "/memfd:kevin-";
  std::ifstream maps("/proc/" + std::to_string(pid) + "/smaps");
  std::vector<NamedMapping> mappings;
  bool is_named = false;
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    const bool is_field = line[0] >= 'A' && line[0] <= 'Z';  // "Rss:  4 kB", after a line with addresses
    if (!is_field) {
      if (++count > most) return std::nullopt;
      unsigned long begin = 0, end = 0, offset = 0;
      const size_t name = line.find(kName);
      is_named = name != std::string::npos &&
                 std::sscanf(line.c_str(), "%lx-%lx %*s %lx", &begin, &end, &offset) == 3;
      if (is_named)
        mappings.push_back(
            {line.substr(name + 7), static_cast<int64_t>(offset), static_cast<int64_t>(end - begin)});
    } else if (is_named) {
      const size_t colon = line.find(':');
      const int64_t bytes = std::atoll(line.c_str() + colon + 1) * 1024;
      if (line.compare(0, colon, "Rss") == 0) mappings.back().resident = bytes;
      if (line.compare(0, colon, "Referenced") == 0) mappings.back().marked = bytes;
    }
  }
  if (count == 0) return std::nullopt;
  return mappings;
}

// Of a process whose main thread has ended, while others run, the kernel shows neither mappings nor marks.
bool MainThreadHasEnded(pid_t pid) {
  const std::vector<std::string> stat = ProcessStat(pid);
  return !stat.empty() && (stat[0] == "Z" || stat[0] == "X");
}

}  // namespace

WaitingProcess BatchProcess::Prepare(Fd* theirs) {
  WaitingProcess waiting;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(ExitCode::kBroken, std::string("cannot make a socket pair: ") + std::strerror(errno));
  }
  waiting.socket = Fd(pair[0]);
  *theirs = Fd(pair[1]);
  waiting.page_fd = CreateSharedFile("kevin-control-page", sizeof(SharedControlPage));
  SealSize(waiting.page_fd.get());
  waiting.page = Mapping(waiting.page_fd.get(), sizeof(SharedControlPage), Access::kReadWrite, true);
  waiting.log = CreateSharedFile("kevin-log", kLogBytes);
  SealSize(waiting.log.get());
  return waiting;
}

WaitingProcess BatchProcess::Start(PythonWorkers& workers) {
  WaitingProcess waiting = Ask(workers);
  Await(workers, &waiting);
  return waiting;
}

WaitingProcess BatchProcess::Ask(PythonWorkers& workers) {
  Fd theirs;
  WaitingProcess waiting = Prepare(&theirs);
  waiting.is_python = true;
  workers.Ask(theirs.get());
  return waiting;
}

void BatchProcess::Await(PythonWorkers& workers, WaitingProcess* waiting) {
  waiting->process = workers.Await();
}

WaitingProcess BatchProcess::Start(const std::vector<std::string>& argv,
                                   const std::vector<std::string>& environment, bool namespaces,
                                   int processors) {
  Fd theirs;
  WaitingProcess waiting = Prepare(&theirs);
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.environment = environment;
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}, {theirs.get(), kRunnerSocket}};
  spawn.namespaces = namespaces;
  spawn.processors = processors;
  waiting.process = Spawn(spawn);
  return waiting;
}

BatchProcess::BatchProcess(WaitingProcess waiting, const RunnerLoad& load, int inputs_fd, int outputs_fd,
                           int library_fd)
    : waiting_(std::move(waiting)) {
  most_mappings_ += 2 * load.arguments.size() * static_cast<size_t>(load.slots);
  const int descriptors[kLoadDescriptors] = {waiting_.page_fd.get(), inputs_fd, outputs_fd, library_fd,
                                             waiting_.log.get()};
  SendLoad(waiting_.socket.get(), load, descriptors);
}

ProcessEnd BatchProcess::Ended(double timeout_s, const std::string& when) {
  int status = 0;
  if (!waiting_.process.Wait(0, &status)) {
    waiting_.process.Kill();
    return {ProcessEnd::Kind::kTimedOut,
            when + " took longer than " + std::to_string(static_cast<int>(timeout_s)) + " s"};
  }
  return {ProcessEnd::Kind::kCrashed, DescribeStatus(status) + " " + when};
}

// The runner reports it on its socket, which it then closes: unlike the page, the candidate cannot write to
// it.
bool BatchProcess::CandidateMayHaveRun() {
  char byte = 0;
  loading_ = loading_ || recv(waiting_.socket.get(), &byte, 1, MSG_DONTWAIT) == 1;
  return loading_;
}

std::optional<ProcessEnd> BatchProcess::WaitReady(double timeout_s) {
  const auto start = Clock::now();
  for (;;) {
    const uint32_t state = page()->state.load(std::memory_order_acquire);
    if (state == static_cast<uint32_t>(PageState::kReady)) return Stop();
    if (waiting_.is_python && state == static_cast<uint32_t>(PageState::kRefused)) return Reported();
    if (state == static_cast<uint32_t>(PageState::kLoadFailed)) {
      return ProcessEnd{ProcessEnd::Kind::kLoadFailed, BoundedText(page()->message, sizeof(page()->message))};
    }
    int status = 0;
    const bool ended = waiting_.process.Wait(0, &status);
    if (ended && !CandidateMayHaveRun()) {
      throw Error(ExitCode::kBroken,
                  "the runner " + DescribeStatus(status) + " before it loaded anything: " + Log(),
                  "run `kevin doctor`");
    }
    if (ended) return ProcessEnd{ProcessEnd::Kind::kCrashed, DescribeStatus(status)};
    if (MicrosecondsSince(start) > timeout_s * 1e6) return Ended(timeout_s, "loading");
    FutexWaitWhile(&page()->state, state, kPollInterval_s / 10);
  }
}

std::optional<ProcessEnd> BatchProcess::Stop() {
  const pid_t pid = waiting_.process.pid();
  const auto start = Clock::now();
  double sent_us = -kStopRepeat_us;
  for (;;) {
    const double waited_us = MicrosecondsSince(start);
    // Again and again: a thread that sends SIGCONT can cancel one that has not taken effect.
    if (waited_us - sent_us >= kStopRepeat_us) {
      kill(pid, SIGSTOP);
      sent_us = waited_us;
    }
    siginfo_t state{};
    if (waitid(P_PID, static_cast<id_t>(pid), &state, WSTOPPED | WEXITED | WNOHANG | WNOWAIT) == 0 &&
        state.si_pid == pid) {
      if (state.si_code == CLD_STOPPED) return std::nullopt;  // only reported once every thread has stopped
      int status = 0;
      waiting_.process.Wait(kStopTimeout_s, &status);
      return ProcessEnd{ProcessEnd::Kind::kCrashed, DescribeStatus(status)};
    }
    if (waited_us > kStopTimeout_s * 1e6) {
      waiting_.process.Kill();
      return ProcessEnd{ProcessEnd::Kind::kCrashed, "could not be stopped and was killed"};
    }
    if (waited_us < kStopPoll_us) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

std::optional<ProcessEnd> BatchProcess::RunFor(double at_most_us, uint32_t before, double timeout_s,
                                               const BatchPauses& pauses, double* used_us, double* ran_us,
                                               bool* done) {
  SharedControlPage* h = page();
  const auto start = Clock::now();
  kill(waiting_.process.pid(), SIGCONT);
  for (;;) {
    const double left_us = at_most_us - MicrosecondsSince(start);
    if (left_us <= 0) break;
    const double spin_us = pauses.on_done ? kMostSpin_us - MicrosecondsSince(start) : 0;
    *done = spin_us > 0 ? SpinWhile(h->done, before, std::min(spin_us, left_us))
                        : FutexWaitWhile(&h->done, before, std::min(kPollInterval_s, left_us * 1e-6));
    if (*done) break;
    int status = 0;
    if (waiting_.process.Wait(0, &status)) {
      return ProcessEnd{ProcessEnd::Kind::kCrashed, DescribeStatus(status)};
    }
    if (*used_us + MicrosecondsSince(start) > timeout_s * 1e6) return Ended(timeout_s, "a call");
  }
  *ran_us += MicrosecondsSince(start);
  if (*done && pauses.on_done) pauses.on_done();
  // Whoever says "done" too early works on until every thread has stopped: that time counts.
  const std::optional<ProcessEnd> end = Stop();
  *used_us += MicrosecondsSince(start);
  return end;
}

std::optional<ProcessEnd> BatchProcess::Go(PageCommand command, double timeout_s, const BatchPauses& pauses,
                                           double* total_us) {
  SharedControlPage* h = page();
  h->command = command;
  h->returned.store(0, std::memory_order_relaxed);
  const uint32_t before = generation_++;
  h->done.store(before, std::memory_order_relaxed);
  h->go.store(generation_, std::memory_order_release);  // the process is stopped: SIGCONT starts the batch
  double used_us = 0, ran_us = 0;
  bool done = false;
  for (const double moment_us : pauses.moments_us) {
    if (done || moment_us <= ran_us) continue;
    if (const auto end = RunFor(moment_us - ran_us, before, timeout_s, pauses, &used_us, &ran_us, &done))
      return end;
    const bool was_seen = done;
    done = done || h->done.load(std::memory_order_acquire) != before;
    if (done && !was_seen && pauses.on_done) pauses.on_done();
    if (!done) pauses.on_pause(ran_us);
  }
  if (!done) {
    constexpr double kNoLimit = 1e300;
    if (const auto end = RunFor(kNoLimit, before, timeout_s, pauses, &used_us, &ran_us, &done)) return end;
  }
  *total_us = used_us;
  if (pauses.ran_us) *pauses.ran_us = ran_us;
  if (MainThreadHasEnded(pid()))
    return ProcessEnd{ProcessEnd::Kind::kRefused,
                      "its main thread has ended: nothing shows what the others read"};
  if (h->done.load(std::memory_order_acquire) != generation_) {
    return ProcessEnd{ProcessEnd::Kind::kCrashed, "the shared control page was overwritten"};
  }
  return std::nullopt;
}

std::optional<ProcessEnd> BatchProcess::RunCalls(PageCommand command, std::span<const uint16_t> slots,
                                                 double timeout_s, double* total_us,
                                                 const BatchPauses& pauses) {
  if (waiting_.is_python) places_.clear();
  for (const uint16_t slot : slots) places_.erase(slot);
  page()->calls = static_cast<uint32_t>(slots.size());
  std::copy(slots.begin(), slots.end(), page()->slot);
  return Go(command, timeout_s, pauses, total_us);
}

std::optional<ProcessEnd> BatchProcess::RunBatch(std::span<const uint16_t> slots, double timeout_s,
                                                 double* total_us, const BatchPauses& pauses) {
  if (const auto end = RunCalls(PageCommand::kRun, slots, timeout_s, total_us, pauses)) return end;
  return waiting_.is_python ? Reported() : std::nullopt;
}

std::optional<ProcessEnd> BatchProcess::RunEmpty(std::span<const uint16_t> slots, double timeout_s,
                                                 double* total_us, const BatchPauses& pauses) {
  return RunCalls(PageCommand::kEmpty, slots, timeout_s, total_us, pauses);
}

std::optional<ProcessEnd> BatchProcess::RunExamined(std::span<const uint16_t> slots, double timeout_s) {
  double ignored_us = 0;
  if (const auto end = RunCalls(PageCommand::kExamine, slots, timeout_s, &ignored_us, {})) return end;
  return Reported();
}

std::optional<ProcessEnd> BatchProcess::Reported() const {
  const std::string message = BoundedText(page()->message, sizeof(page()->message));
  switch (static_cast<PageState>(page()->state.load(std::memory_order_acquire))) {
    case PageState::kRaised:
      return ProcessEnd{ProcessEnd::Kind::kRaised, message};
    case PageState::kWrongOutput:
      return ProcessEnd{ProcessEnd::Kind::kWrongOutput, message};
    case PageState::kRefused:
      return ProcessEnd{ProcessEnd::Kind::kRefused, message};
    default:
      return std::nullopt;
  }
}

std::optional<std::vector<int64_t>> BatchProcess::PublishedStrides(size_t call, size_t output,
                                                                   size_t dims) const {
  if (page()->is_strided[call][output] == 0) return std::nullopt;
  const int64_t* strides = page()->published_stride[call][output];
  return std::vector<int64_t>(strides, strides + std::min<size_t>(dims, kMaxDims));
}

std::optional<ProcessEnd> BatchProcess::Publish(double timeout_s) {
  double ignored_us = 0;
  if (const auto end = Go(PageCommand::kPublish, timeout_s, {}, &ignored_us)) return end;
  for (uint32_t i = 0; i < std::min<uint32_t>(page()->calls, kMaxSlots); ++i)
    std::copy_n(page()->published_offset[i], kMaxOutputs, places_[page()->slot[i]].begin());
  return std::nullopt;
}

std::optional<std::vector<BatchProcess::TouchedPart>> BatchProcess::TouchedInputs() const {
  const auto mappings = MappingsOf(pid(), most_mappings_);
  if (!mappings) return std::nullopt;
  std::vector<TouchedPart> parts;
  for (const NamedMapping& mapping : *mappings) {
    const bool is_output = mapping.name.starts_with("kevin-outputs");
    if (!is_output && !mapping.name.starts_with("kevin-inputs")) continue;
    parts.push_back({mapping.offset, mapping.bytes, mapping.bytes - mapping.resident + mapping.marked,
                     mapping.marked, is_output});
  }
  return parts;
}

int64_t BatchProcess::MarkedBytes() const {
  std::ifstream rollup("/proc/" + std::to_string(pid()) + "/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    constexpr std::string_view kField = "Referenced:";
    if (line.starts_with(kField)) return std::atoll(line.c_str() + kField.size()) * 1024;
  }
  return 0;
}

bool BatchProcess::ShowsMarks() const {
  const Fd smaps(open(("/proc/" + std::to_string(pid()) + "/smaps").c_str(), O_RDONLY | O_CLOEXEC));
  return smaps.get() >= 0 || (errno != EACCES && errno != EPERM);
}

bool BatchProcess::HasMarks() {
  static const bool kHas = [] {
    constexpr size_t kBytes = 1 << 20;
    const Fd fd = CreateSharedFile("kevin-marks", kBytes);
    const Mapping memory(fd.get(), kBytes, Access::kReadWrite, true);
    std::memset(memory.data(), 1, kBytes);
    const auto is_marked = [] {
      const auto mappings = MappingsOf(getpid(), std::numeric_limits<size_t>::max());
      return mappings && std::any_of(mappings->begin(), mappings->end(), [](const NamedMapping& mapping) {
               return mapping.name.starts_with("kevin-marks") && mapping.marked > 0;
             });
    };
    return is_marked() && ForgetTouchedBy(getpid()) && !is_marked();
  }();
  return kHas;
}

bool BatchProcess::ForgetTouchedBy(pid_t pid) {
  std::ofstream marks("/proc/" + std::to_string(pid) + "/clear_refs");
  marks << "1";
  return static_cast<bool>(marks.flush());
}

double BatchProcess::CpuSeconds() const {
  clockid_t clock{};
  if (clock_getcpuclockid(waiting_.process.pid(), &clock) != 0) return 0;
  const auto read = [&] {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  double seconds = read();
  const auto start = Clock::now();
  for (auto same_since = start; MicrosecondsSince(same_since) < kCpuClockRests_us;) {
    sched_yield();
    const double now = read();
    if (now != seconds) seconds = now, same_since = Clock::now();
    if (MicrosecondsSince(start) > kCpuClockTimeout_us) break;
  }
  return seconds;
}

double BatchProcess::WaitedSeconds() const {
  double waited_ns = 0;
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(waiting_.process.pid()) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::ifstream schedstat(task.path() / "schedstat");
    double ran = 0, waited = 0;
    if (schedstat >> ran >> waited) waited_ns += waited;
  }
  return waited_ns * 1e-9;
}

std::string BatchProcess::Log() const {
  const Mapping log(waiting_.log.get(), kLogBytes, Access::kReadOnly, false);
  return BoundedText(reinterpret_cast<const char*>(log.data()), kLogBytes);
}

}  // namespace kevin
