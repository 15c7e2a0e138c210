#include "env/cpu/audit.h"

#include <algorithm>

#include "env/process/runner_protocol.h"

namespace kevin {
namespace {

constexpr double kMinBetweenPauses_us = 300;
constexpr int kMaxPauses = 8;
constexpr int64_t kPagesBeyond = 2;

}  // namespace

AuditPlan DrawAuditPlan(double usual_us, size_t calls, SecretRandom& random) {
  const auto share = [&](double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  };
  // The first pause shows how far the calls have come; further ones make work done ahead worthless again.
  const int most = std::clamp(static_cast<int>(usual_us / kMinBetweenPauses_us), 1,
                              std::min(kMaxPauses, static_cast<int>(calls)));
  const int pauses = random() % 2 == 0 ? 1 : most;
  const double first = pauses == 1 ? share(0.3, 0.8) : share(0.1, 0.5);
  AuditPlan plan;
  plan.moments_us.push_back(first * usual_us);
  for (int i = 1; i < pauses; ++i) plan.moments_us.push_back(share(first, 0.95) * usual_us);
  std::sort(plan.moments_us.begin(), plan.moments_us.end());
  plan.redraws = random() % 2 == 0;
  return plan;
}

Audit::Audit(Session& session, const BatchProcess& process, const OutputMemory& outputs,
             std::span<const uint16_t> slots, const AuditPlan& plan)
    : session_(session),
      process_(process),
      slots_(slots),
      plan_(plan),
      final_(session, outputs, slots),
      changed_(slots.size()) {
  process_.ForgetTouched();
}

// Calls from `begun` on have not begun. The runner maps each tensor of each slot on its own (runner_main.cc); where the
// process has undone that, what belongs together is not known, and that alone tells.
bool Audit::WasReadAhead(size_t begun) const {
  const std::vector<BatchProcess::TouchedPart> parts = process_.TouchedInputs();
  if (parts.empty() || !MapsSlotsApart(session_.layout().arguments, session_.slots())) return false;
  for (const ArgumentPlace& place : session_.layout().arguments) {
    if (place.output) continue;
    const auto stride = static_cast<int64_t>(place.stride);
    // A kernel may prefetch, and a processor guess, a little beyond the ends of a neighbour.
    const int64_t allowed = std::max(stride / 4, std::min(kPagesBeyond * kSlotPage, stride));
    for (size_t call = begun; call < slots_.size(); ++call) {
      const int64_t offset = static_cast<int64_t>(place.offset) + slots_[call] * stride;
      bool is_mapped = false;
      for (const BatchProcess::TouchedPart& part : parts) {
        if (part.offset + part.bytes <= offset || offset + stride <= part.offset) continue;
        is_mapped = true;  // perhaps a second time, by mremap
        if (part.offset != offset || part.bytes != stride || part.touched > allowed) return true;
      }
      if (!is_mapped) return true;
    }
  }
  return false;
}

BatchPauses Audit::Pauses() {
  return {plan_.moments_us, [this](double ran_us) { OnPause(ran_us); }, &ran_us_};
}

void Audit::OnPause(double ran_us) {
  const size_t returned = std::min<size_t>(process_.Returned(), slots_.size());
  read_ahead_ |= WasReadAhead(returned + 1);
  const bool is_first = pauses_++ == 0;
  if (is_first) {
    first_pause_us_ = ran_us;
    finished_ = (static_cast<double>(returned) + 0.5) / static_cast<double>(slots_.size());
  }
  for (; seen_calls_ < returned; ++seen_calls_) final_.Remember(seen_calls_);
  // The call after those that have returned may have begun.
  for (size_t call = returned + 1; plan_.changes && call < slots_.size(); ++call) {
    if (is_first && plan_.redraws) {
      session_.FillInputs(slots_.subspan(call, 1));
    } else {
      session_.RearrangeInputs(slots_[call]);
    }
    changed_[call] = true;
  }
}

}  // namespace kevin
