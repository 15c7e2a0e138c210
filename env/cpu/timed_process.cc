#include "env/cpu/timed_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "env/cpu/audit.h"
#include "env/error.h"

namespace kevin {
namespace {

constexpr double kOutsideShare = 0.01;     // of the windows that are not its own
constexpr double kOutsideSlack_s = 15e-6;  // per hand-over: going to sleep and waking up
constexpr double kLoadCpu_s = 0.5;         // mapping its memory included
constexpr double kLoadTimeout_s = 20;
constexpr double kFallAsleep_s = 200e-6;  // after a batch, until its threads wait and are accounted for

Outcome OutcomeOf(const SideEnd& end, const std::string& phase, const std::string& log, double limit_s) {
  const std::string said = log.empty() ? "" : "; it printed: " + log.substr(0, 2000);
  switch (end.kind) {
    case SideEnd::Kind::kTimedOut:
      return TimedOut{phase, limit_s};
    case SideEnd::Kind::kLoadFailed:
      return CompileFailed{"the compiled kernel does not load: " + end.message};
    case SideEnd::Kind::kCrashed:
      return Crashed{end.message + " during " + phase + said};
  }
  return Crashed{end.message};
}

void SleepFor(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// A process's CPU clock, read from another process, lags behind its running threads by up to one tick of the
// kernel.
double TickSeconds() {
  timespec tick{};
  clock_getres(CLOCK_REALTIME_COARSE, &tick);
  return 1.1 * (static_cast<double>(tick.tv_sec) + static_cast<double>(tick.tv_nsec) * 1e-9);
}

}  // namespace

void PauseBeforeTurn() { SleepFor(TickSeconds()); }

Contender::Contender(Session& session, std::string side, int library_fd, const OutputMemory& outputs)
    : session_(session), side_name_(std::move(side)), outputs_(outputs) {
  process_ = session.StartCandidate(library_fd, outputs);
  const double limit_s = std::min(kLoadTimeout_s, session.options().limits.call_timeout_s);
  if (const auto end = process_->WaitReady(limit_s)) Fail(*end, "load");
  cpu_after_ = process_->CpuSeconds();
  if (cpu_after_ > kLoadCpu_s) {
    End(Refused{
        fmt::format("spent {:.2f} s of CPU while being loaded: work outside its timed calls", cpu_after_)});
  }
}

double Contender::Run(std::span<const uint16_t> slots, const std::string& phase,
                      const std::function<void()>& watch) {
  PauseBeforeTurn();
  const double before_s = process_->CpuSeconds();
  if (counting_) outside_s_ += before_s - cpu_after_;
  double total_us = 0;
  const double limit_s = session_.options().limits.call_timeout_s;
  if (const auto end = process_->RunBatch(slots, limit_s, &total_us, watch)) Fail(*end, phase);
  FinalOutputs final_outputs(session_, outputs_, slots);
  final_outputs.Remember(slots.size());
  SleepFor(kFallAsleep_s);
  if (final_outputs.Changed()) {
    End(Refused{"deferred work: outputs changed after the batch was said to be done"});
  }
  cpu_after_ = process_->CpuSeconds();
  // What was used after "done", or before "go" and not yet shown, is more than its threads can have used.
  const double most_s = total_us * 1e-6 * session_.options().threads;
  if (counting_) outside_s_ += std::max(0.0, cpu_after_ - before_s - most_s);
  ++handovers_;
  return total_us;
}

void Contender::StartCounting() {
  counting_ = true;
  cpu_after_ = process_->CpuSeconds();
  outside_s_ = other_windows_s_ = 0;
  handovers_ = 0;
}

void Contender::CheckOutside() {
  outside_s_ += process_->CpuSeconds() - cpu_after_;
  cpu_after_ = process_->CpuSeconds();
  const double allowed_s = kOutsideShare * other_windows_s_ + kOutsideSlack_s * (handovers_ + 1);
  if (outside_s_ > allowed_s) {
    End(Refused{fmt::format("used {:.2f} ms of CPU outside its own timed calls ({:.2f} ms allowed)",
                            outside_s_ * 1e3, allowed_s * 1e3)});
  }
}

void Contender::End(const Outcome& outcome) const {
  if (side_name_ == "candidate") throw Ended{outcome};
  throw Error(ExitCode::kBadRequest,
              fmt::format("the kernel to compare with: {}: {}", OutcomeName(outcome), OutcomeReason(outcome)),
              "judge it alone first: kevin bench FILE --problem ID");
}

void Contender::Fail(const SideEnd& end, const std::string& phase) const {
  End(OutcomeOf(end, phase, process_->Log(), session_.options().limits.call_timeout_s));
}

}  // namespace kevin
