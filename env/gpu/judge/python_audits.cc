#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "env/error.h"
#include "env/gpu/judge/python_judgement.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLateLimit_s = 0.06, kDrainLimit_s = 1, kDrainFactor = 4, kEndLimit_s = 5;
constexpr int kMostLateRounds = 2, kLeastPauses = 2, kMostPauses = 8;
constexpr double kBetweenPauses_us = 300;
constexpr int kLeastAudits = 6, kMostAudits = 24;
// A context with what torch keeps beside its allocator takes half a GiB.
constexpr size_t kMostOutsidePool = size_t{2} << 30;

}  // namespace

// Work that goes on would take part of the other side's time.
void GpuPythonJudgement::RequireQuiet(PythonSide& side, uint64_t since_us) {
  if (session_.IsQuiet()) return;
  if (session_.workers().Settle() && session_.IsQuiet()) return;  // the first kernels of a spare
  if (session_.AwaitQuiet(kLateLimit_s) && ++late_rounds_ <= kMostLateRounds) return;
  RefuseDeferredWork(side, since_us);
}

// At a pause the device may still have work of calls that have been launched: that is no lateness.
void GpuPythonJudgement::AwaitDrained(PythonSide& side, uint64_t since_us, double batch_us) {
  if (!session_.AwaitQuiet(kDrainLimit_s + kDrainFactor * batch_us * 1e-6))
    RefuseDeferredWork(side, since_us);
}

// Unless others computed since then: MeasureUndisturbed sees them too.
void GpuPythonJudgement::RefuseDeferredWork(PythonSide& side, uint64_t since_us) {
  const OtherProcesses* others = base_.options().others;
  if (others && !others->Computed(OwnProcesses(), since_us).empty()) return;
  // Its work ends with its process.
  side.Kill();
  if (session_.AwaitQuiet(kEndLimit_s))
    End(side, Refused{"deferred work: its work goes on on the GPU after the end of a batch"});
  throw Error(
      ExitCode::kMachine,
      "another process computes on this GPU, and the driver does not say which one: the evaluation is void",
      "end it (`nvidia-smi`), or use another GPU with --device cuda:N");
}

// Whether the candidate's process has held memory of the device outside its pool, which then lacks elsewhere. Ends it.
bool GpuPythonJudgement::TookMemory() {
  if (sides_.empty()) return false;
  const size_t before = MemoryOfDevice().free;
  sides_.front()->Kill();
  const auto start = Clock::now();
  do {
    if (MemoryOfDevice().free >= before + kMostOutsidePool) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (SecondsSince(start) < kEndLimit_s);
  return false;
}

// Workers that were started or ran meanwhile may be broken.
void GpuPythonJudgement::RefuseTakenMemory() {
  result_.outcome = Refused{"takes GPU memory outside its pool: none was left for the evaluator's own work"};
  result_.log = sides_.front()->process().Log();
  sides_.clear();
  session_.workers().DropSpares();
  session_.StartReference();
}

// Within a batch of `calls`. On a busy machine a batch takes some times as long as the shortest before.
std::vector<double> GpuPythonJudgement::DrawMoments(int calls) {
  const double batch_us = candidate_us_ * calls;
  const auto count = static_cast<size_t>(
      std::clamp(batch_us / kBetweenPauses_us, double{kLeastPauses}, double{kMostPauses}));
  std::vector<double> moments_us;
  while (moments_us.size() < count)
    moments_us.push_back(RandomUnit() * batch_us * static_cast<double>(1 << base_.random()() % 3));
  std::sort(moments_us.begin(), moments_us.end());
  return moments_us;
}

// On a busy machine a batch may end before the evaluator has a processor again: such audits find nothing and do not count.
void GpuPythonJudgement::AuditEnough() {
  Audit();  // an audited process is never safe from a further audit
  for (int i = 1; audits_ < kLeastAudits && i < kMostAudits; ++i) Audit();
}

void GpuPythonJudgement::Audit() {
  PythonSide& side = *sides_.front();
  const int calls = std::uniform_int_distribution<int>(least_calls_, most_calls_)(base_.random());
  if (calls < 2) return;
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  session_.Draw(slots);
  std::vector<char> changed(slots.size(), 0);
  bool redraws = RandomUnit() < 0.5;  // else, and at later pauses, single elements change
  const uint64_t since_us = OtherProcesses::NowUs();
  BatchPauses pauses;
  bool is_paused = false;
  pauses.moments_us = DrawMoments(calls);
  pauses.on_pause = [&](double) {
    is_paused = true;
    const size_t returned = std::min<size_t>(side.process().Returned(), slots.size());
    AwaitDrained(side, since_us, candidate_us_ * calls);
    const std::span<const uint16_t> finished = std::span(slots).first(returned);
    ComputeReference(finished);
    const bool is_located = session_.Take(side, finished, returned).empty();
    for (size_t call = 0; call < returned; ++call) {
      if (is_located && checker_.AgainstReference(slots[call]).ok) continue;
      if (changed[call]) End(side, Refused{kWorkedAhead});
      End(side, Refused{"deferred work: a call that had returned had not finished its outputs"});
    }
    if (returned + 1 >= slots.size()) return;
    // The call that follows may be under way.
    const std::span<const uint16_t> later = std::span(slots).subspan(returned + 1);
    redraws ? session_.Draw(later) : session_.Rearrange(later);
    redraws = false;
    session_.HandOut(side, later);
    std::fill(changed.begin() + static_cast<std::ptrdiff_t>(returned) + 1, changed.end(), 1);
  };
  RunSide(side, slots, "measure", pauses);
  audits_ += is_paused;
  ComputeReference(slots);
  CheckOutputs(side, slots, slots.size(), changed);
}

}  // namespace kevin
