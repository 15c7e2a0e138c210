#include "agent/train/turn_times.h"

namespace kevin {

void BusyTime::Enter() {
  const std::lock_guard lock(mutex_);
  if (inside_++ == 0) since_ = Clock::now();
}

void BusyTime::Leave() {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0) sum_ += Clock::now() - since_;
}

double BusyTime::Seconds() const {
  const std::lock_guard lock(mutex_);
  const Clock::duration running = inside_ > 0 ? Clock::now() - since_ : Clock::duration(0);
  return std::chrono::duration<double>(sum_ + running).count();
}

}  // namespace kevin
