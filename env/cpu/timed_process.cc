#include "env/cpu/timed_process.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/cpu/checks.h"

namespace kevin {
namespace {

constexpr double kOutsideShare = 0.01;     // of its own windows or of the others', whichever are less
constexpr double kOutsideSlack_s = 15e-6;  // per batch: the signals, and differences between the clocks
constexpr double kLoadCpu_s = 0.5;
constexpr double kMapCpu_sPerGib =
    0.5;  // of the slots' memory, which is mapped while the candidate is loaded
constexpr double kLoadTimeout_s = 20;

Outcome OutcomeOf(const ProcessEnd& end, const std::string& phase, const std::string& log, double limit_s,
                  bool is_python) {
  const std::string said = log.empty() ? "" : "; it printed: " + log.substr(0, 2000);
  switch (end.kind) {
    case ProcessEnd::Kind::kTimedOut:
      return TimedOut{phase, limit_s};
    case ProcessEnd::Kind::kLoadFailed:
      return CompileFailed{is_python ? end.message : "the compiled kernel does not load: " + end.message};
    case ProcessEnd::Kind::kRaised:
      return Crashed{end.message + " during " + phase + said};
    case ProcessEnd::Kind::kWrongOutput:
      return Wrong{end.message, 0, 0};
    case ProcessEnd::Kind::kRefused:
      return Refused{end.message};
    case ProcessEnd::Kind::kCrashed:
      return Crashed{end.message + " during " + phase + said};
  }
  return Crashed{end.message};
}

}  // namespace

TimedProcess::TimedProcess(Session& session, std::string name, int library_fd, OutputMemory& outputs,
                           int threads, Loading loading)
    : session_(session),
      name_(std::move(name)),
      outputs_(outputs),
      process_(session.StartCandidate(library_fd, outputs, threads)) {
  if (loading == Loading::kAwaited) AwaitLoaded();
}

void TimedProcess::AwaitLoaded() {
  const double limit_s = std::min(kLoadTimeout_s, session_.options().limits.call_timeout_s);
  if (const auto end = process_->WaitReady(limit_s)) Fail(*end, "load");
  cpu_after_ = process_->CpuSeconds();
  // The import and construction of a Python candidate may take as long as a call: no input is drawn yet.
  const SlotLayout& layout = session_.layout();
  const double mapped_gib = static_cast<double>(layout.inputs_bytes + layout.outputs_bytes) / (1 << 30);
  const double most_s =
      session_.is_python() ? limit_s * session_.options().threads : kLoadCpu_s + kMapCpu_sPerGib * mapped_gib;
  if (cpu_after_ > most_s) {
    End(Refused{
        fmt::format("spent {:.2f} s of CPU while being loaded: work outside its timed calls", cpu_after_)});
  }
}

double TimedProcess::Run(std::span<const uint16_t> slots, const std::string& phase,
                         const BatchPauses& pauses) {
  const double before_s = process_->CpuSeconds();
  if (counting_) outside_s_ += before_s - cpu_after_;
  double total_us = 0;
  const double limit_s = session_.options().limits.call_timeout_s;
  if (const auto end = process_->RunBatch(slots, limit_s, &total_us, pauses)) Fail(*end, phase);
  cpu_after_ = process_->CpuSeconds();
  cpu_of_batch_s_ = cpu_after_ - before_s;
  // More than its threads can have used in the window was used between "done" and the stop.
  const double most_s = total_us * 1e-6 * session_.options().threads;
  if (counting_) outside_s_ += std::max(0.0, cpu_after_ - before_s - most_s);
  own_windows_s_ += total_us * 1e-6;
  ++batches_;
  if (const std::string reason = session_.LocateOutputs(outputs_, *process_, slots, phase == "verify");
      !reason.empty())
    End(Refused{reason});
  if (phase == "measure") {
    FinalOutputs final_outputs(session_, outputs_, slots);
    for (size_t call = 0; call < slots.size(); ++call) final_outputs.Remember(call);
    if (final_outputs.Unwritten()) {
      End(Refused{"deferred work: outputs were unwritten when the batch was reported as done"});
    }
  }
  return total_us;
}

void TimedProcess::StartCounting() {
  counting_ = true;
  cpu_after_ = process_->CpuSeconds();
  outside_s_ = own_windows_s_ = other_windows_s_ = 0;
  batches_ = 0;
}

std::string TimedProcess::UsedOutside() {
  const double now_s = process_->CpuSeconds();
  outside_s_ += now_s - cpu_after_;
  cpu_after_ = now_s;
  const double allowed_s =
      kOutsideShare * std::min(own_windows_s_, other_windows_s_) + kOutsideSlack_s * (batches_ + 1);
  if (outside_s_ <= allowed_s) return "";
  return fmt::format("used {:.2f} ms of CPU outside its own timed calls ({:.2f} ms allowed)",
                     outside_s_ * 1e3, allowed_s * 1e3);
}

void TimedProcess::End(const Outcome& outcome) const { EndJudgement(name_ == "candidate", outcome); }

void TimedProcess::Fail(const ProcessEnd& end, const std::string& phase) const {
  End(OutcomeOf(end, phase, process_->Log(), session_.options().limits.call_timeout_s, session_.is_python()));
}

}  // namespace kevin
