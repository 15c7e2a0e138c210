#include "agent/phase_gate.h"

#include <chrono>
#include <map>

#include "env/error.h"

namespace kevin {

PhaseGate& PhaseGate::Of(const std::string& device) {
  static std::mutex mutex;
  static std::map<std::string, PhaseGate> gates;
  const std::lock_guard lock(mutex);
  return gates[device];
}

PhaseGate::Pass::Pass(PhaseGate* gate, Phase phase, const CancelToken* cancel) : gate_(gate), phase_(phase) {
  if (gate_ == nullptr) return;
  std::unique_lock lock(gate_->mutex_);
  while (gate_->inside_[phase == kAnswer ? kJudge : kAnswer] > 0) {
    gate_->changed_.wait_for(lock, std::chrono::milliseconds(50));
    if (cancel != nullptr && *cancel)
      throw Error(ExitCode::kInterrupted, "interrupted while the device was used by other episodes");
  }
  ++gate_->inside_[phase];
}

PhaseGate::Pass::~Pass() {
  if (gate_ == nullptr) return;
  {
    const std::lock_guard lock(gate_->mutex_);
    --gate_->inside_[phase_];
  }
  gate_->changed_.notify_all();
}

}  // namespace kevin
