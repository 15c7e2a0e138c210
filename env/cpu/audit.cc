#include "env/cpu/audit.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "env/cpu/peak.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"

namespace kevin {
namespace {

// Each pause makes work ahead of a few calls worthless. Small inputs are changed quickly.
struct PausesLimit {
  double min_between_us;
  int most;
};
constexpr PausesLimit kPauses{300, 8}, kPausesIfSmall{100, 24};
constexpr int64_t kSmallInputs_bytes = 16 << 20;
constexpr double kEarly = 0.1;        // of a batch
constexpr int kPausesWithMarks = 8;   // at which marks are read under suspicion
constexpr int64_t kMostTouched = 16;  // one part in so many; of less than sixteen pages none

}  // namespace

AuditPlan DrawAuditPlan(double usual_us, size_t calls, int64_t inputs_bytes, bool removes_marks,
                        SecretRandom& random, std::optional<bool> is_early) {
  const auto share = [&](double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  };
  // The first pause shows how far the calls have come; further ones make work done ahead worthless again. It may come at
  // any time: where none comes, a kernel could work ahead.
  const PausesLimit& limit = inputs_bytes <= kSmallInputs_bytes ? kPausesIfSmall : kPauses;
  const int most = std::clamp(static_cast<int>(usual_us / limit.min_between_us), 1,
                              std::min(limit.most, static_cast<int>(calls)));
  const int pauses = random() % 2 == 0 ? 1 : most;
  AuditPlan plan;
  plan.removes_marks = removes_marks;
  plan.is_early = is_early.value_or(random() % 2 == 0);
  const double first = share(0, plan.is_early ? kEarly : 1);
  plan.moments_us.push_back(first * usual_us);
  for (int i = 1; i < pauses; ++i) plan.moments_us.push_back(share(first, 1) * usual_us);
  std::sort(plan.moments_us.begin(), plan.moments_us.end());
  plan.redraws = random() % 2 == 0;
  return plan;
}

Audit::Audit(Session& session, const BatchProcess& process, const OutputMemory& outputs,
             std::span<const uint16_t> slots, const AuditPlan& plan, OtherMarks others)
    : session_(session),
      process_(process),
      outputs_(outputs),
      slots_(slots),
      plan_(plan),
      final_(session, outputs, slots),
      changed_(slots.size()),
      others_(others),
      marks_work_(plan.removes_marks && DoMarksWork()),
      cpu_begin_s_(process.CpuSeconds()) {}

// Nobody has touched anything since the marks were removed: the processes are stopped. Last those of the audited process,
// which has the marks that the kernel has taken over from the others until then.
bool Audit::DoMarksWork() {
  const auto start = std::chrono::steady_clock::now();
  if (others_.are_removed) {
    BatchProcess::ForgetTouchedBy(getpid());
    session_.reference_process().ForgetTouched();
    if (others_.start != nullptr) others_.start->ForgetTouched();
  }
  const bool are_gone = BatchProcess::HasMarks() && process_.ForgetTouched();
  if (are_gone) FlushTranslations(session_.options().threads);
  marks_s_ = SecondsSince(start);
  if (!are_gone) return false;
  const auto parts = process_.TouchedInputs();
  return !parts ||
         std::none_of(parts->begin(), parts->end(), [](const auto& part) { return part.marked > 0; });
}

// Calls from `begun` on have not begun. Whoever has changed the mapping of their inputs has begun with them.
bool Audit::WasReadAhead(size_t begun) const {
  if (!marks_work_) return false;
  const auto parts = process_.TouchedInputs();
  if (!parts) return true;  // it has hidden them: this machine shows marks
  for (const ArgumentPlace& place : session_.layout().arguments) {
    if (place.output && !place.inout) continue;
    const auto stride = static_cast<int64_t>(place.stride);
    const int64_t first = static_cast<int64_t>(place.offset) - (place.inout ? kSlotPage : 0);
    std::vector<int64_t> touched(static_cast<size_t>(session_.slots()), -1);  // of each slot; -1: not mapped
    for (const BatchProcess::TouchedPart& part : *parts) {
      if (part.is_output != place.inout) continue;
      if (part.offset + part.bytes <= first || first + stride * session_.slots() <= part.offset) continue;
      const bool is_whole =
          part.bytes == stride && (part.offset - first) % stride == 0 && part.offset >= first;
      const int64_t from = std::max<int64_t>(0, (part.offset - first) / stride);
      const int64_t to =
          std::min<int64_t>(session_.slots(), (part.offset + part.bytes - first - 1) / stride + 1);
      for (int64_t slot = from; slot < to; ++slot) {
        int64_t& all = touched[static_cast<size_t>(slot)];
        all = std::max<int64_t>(all, 0) +
              (is_whole ? part.touched : stride);  // perhaps mapped twice, by mremap
      }
    }
    for (size_t call = begun; call < slots_.size(); ++call) {
      const int64_t bytes = touched[slots_[call]];
      if (bytes < 0 || bytes > stride / kMostTouched) return true;
    }
  }
  return false;
}

BatchPauses Audit::Pauses() {
  return {plan_.moments_us, [this](double ran_us) { OnPause(ran_us); }, &ran_us_};
}

void Audit::OnPause(double ran_us) {
  const size_t returned = std::min<size_t>(process_.Returned(), slots_.size());
  const bool is_first = pauses_++ == 0, is_last = pauses_ == static_cast<int>(plan_.moments_us.size());
  // The marks of all pages take longer to read than a call runs. Who works ahead after the first pause knows of the audit.
  if (is_first || is_last || (others_.are_removed && pauses_ <= kPausesWithMarks))
    read_ahead_ |= WasReadAhead(returned + 1);
  if (is_first) {
    first_pause_us_ = ran_us;
    first_pause_cpu_s_ = process_.CpuSeconds();
    finished_ = (static_cast<double>(returned) + 0.5) / static_cast<double>(slots_.size());
  }
  located_ &= session_.LocateOutputs(outputs_, process_, slots_.first(returned)).empty();
  for (; located_ && seen_calls_ < returned; ++seen_calls_) {
    final_.Remember(seen_calls_);
    final_.RememberInOuts(seen_calls_);
  }
  // The call after those that have returned may have begun.
  for (size_t call = returned + 1; plan_.changes && call < slots_.size(); ++call) {
    if (is_first && plan_.redraws) {
      session_.FillInputs(slots_.subspan(call, 1));
    } else {
      session_.RearrangeInputs(slots_[call]);
    }
    changed_[call] = true;
  }
  if (returned + 1 < slots_.size()) session_.RestoreInOuts(outputs_, slots_.subspan(returned + 1));
  // What was changed here was not read by the process.
  if (marks_work_ && others_.are_removed && !is_last) BatchProcess::ForgetTouchedBy(getpid());
}

}  // namespace kevin
