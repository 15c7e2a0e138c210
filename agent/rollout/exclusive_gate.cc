#include "agent/rollout/exclusive_gate.h"

#include <chrono>

namespace kevin {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // at `drain`, which wakes nobody

}  // namespace

bool Seclusion::Enter(bool alone, const CancelToken& drain) {
  std::unique_lock lock(mutex_);
  if (alone && (admitted_ > 0 || is_alone_)) return false;
  while (is_alone_ && !drain) wake_.wait_for(lock, kLook);
  if (is_alone_) return false;
  ++admitted_;
  is_alone_ = alone;
  if (alone) who_ = std::this_thread::get_id();
  return true;
}

void Seclusion::Leave(bool alone) {
  if (alone) EndSolitude();
  const std::lock_guard lock(mutex_);
  --admitted_;
}

void Seclusion::EndSolitude() {
  const std::lock_guard lock(mutex_);
  if (!is_alone_ || who_ != std::this_thread::get_id()) return;
  is_alone_ = false;
  wake_.notify_all();
}

}  // namespace kevin
