#include "agent/rollout/exclusive_gate.h"

#include <chrono>
#include <utility>

namespace kevin {
namespace {

constexpr auto kDrainCheck = std::chrono::milliseconds(100);  // setting `drain` wakes no thread

}  // namespace

bool ExclusiveGate::Enter(bool exclusive, const CancelToken& drain) {
  std::unique_lock lock(mutex_);
  if (exclusive && (admitted_ > 0 || is_exclusive_)) return false;
  while (is_exclusive_ && !drain) wake_.wait_for(lock, kDrainCheck);
  if (is_exclusive_) return false;
  ++admitted_;
  is_exclusive_ = exclusive;
  if (exclusive) holder_ = std::this_thread::get_id();
  return true;
}

void ExclusiveGate::Leave(bool exclusive) {
  if (exclusive) EndExclusive();
  const std::lock_guard lock(mutex_);
  --admitted_;
}

void ExclusiveGate::EndExclusive() {
  const std::lock_guard lock(mutex_);
  if (!is_exclusive_ || holder_ != std::this_thread::get_id()) return;
  is_exclusive_ = false;
  wake_.notify_all();
}

bool Place::Take(const CancelToken& drain) {
  while (!is_taken_ && !drain) is_taken_ = places_.try_acquire_for(kDrainCheck);
  if (drain) Leave();
  return is_taken_;
}

void Place::Leave() {
  if (std::exchange(is_taken_, false)) places_.release();
}

}  // namespace kevin
