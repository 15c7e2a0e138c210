#include "env/cpu/audit.h"

#include <algorithm>

namespace kevin {
namespace {

constexpr double kMinBetweenPauses_us = 300;
constexpr int kMaxPauses = 8;

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
      changed_(slots.size()) {}

BatchPauses Audit::Pauses() {
  return {plan_.moments_us, [this](double ran_us) { OnPause(ran_us); }, &ran_us_};
}

void Audit::OnPause(double ran_us) {
  const size_t returned = std::min<size_t>(process_.Returned(), slots_.size());
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
