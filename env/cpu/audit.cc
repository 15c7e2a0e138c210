#include "env/cpu/audit.h"

#include <algorithm>

#include "env/process/generator.h"

namespace kevin {
namespace {

constexpr double kMinBetweenPauses_us = 300;
constexpr int kMaxPauses = 8;
// What a pause adds to the time of a correct kernel, in empty batches: threads wake up and lose their place in
// the caches.
constexpr double kHandoversOfPause = 2;

}  // namespace

Audit::Audit(Session& session, const BatchProcess& process, const OutputMemory& outputs,
             std::span<const uint16_t> slots, double usual_us)
    : session_(session),
      process_(process),
      slots_(slots),
      usual_us_(usual_us),
      final_(session, outputs, slots),
      changed_(slots.size()) {
  // One pause shows how far the calls have come; several make precomputed work worthless again and again.
  const int most = std::clamp(static_cast<int>(usual_us / kMinBetweenPauses_us), 1,
                              std::min(kMaxPauses, static_cast<int>(slots.size())));
  const int pauses = session.random()() % 2 == 0 ? 1 : most;
  // In the middle a single pause says most about the pace.
  std::uniform_real_distribution<double> moment(pauses == 1 ? 0.3 : 0.02, pauses == 1 ? 0.8 : 0.9);
  for (int i = 0; i < pauses; ++i) moments_us_.push_back(moment(session.random()) * usual_us);
  std::sort(moments_us_.begin(), moments_us_.end());
}

BatchPauses Audit::Pauses() {
  return {moments_us_, [this](double used_us) { OnPause(used_us); }};
}

void Audit::OnPause(double used_us) {
  const size_t returned = std::min<size_t>(process_.Returned(), slots_.size());
  if (pauses_++ == 0) {
    const double passed = std::max(0.0, used_us - session_.handover_us()) / usual_us_;
    const double finished = (static_cast<double>(returned) + 0.5) / static_cast<double>(slots_.size());
    lag_ = passed - finished;
  }
  for (; seen_calls_ < returned; ++seen_calls_) final_.Remember(seen_calls_);
  // The call after those that have returned may have begun.
  for (size_t call = returned + 1; call < slots_.size(); ++call) {
    const std::vector<TensorView> inputs = session_.Inputs(slots_[call]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ConcreteTensor& tensor = session_.sized().inputs[i];
      Rearrange(tensor.spec, tensor.elements, session_.random(), inputs[i].data);
    }
    changed_[call] = true;
  }
}

AuditedPace Audit::PaceAfter(double total_us) const {
  AuditedPace pace;
  pace.lag = lag_;
  pace.has_lag = moments_us_.size() == 1;
  pace.excess =
      (total_us - usual_us_ - pauses_ * kHandoversOfPause * session_.handover_us()) / usual_us_;
  return pace;
}

}  // namespace kevin
