#include "env/cpu/spare_workers.h"

#include <utility>

namespace kevin {

void SpareWorkers::Ask(size_t count) {
  for (; spares_.size() < count; ++asked_) spares_.push_back(BatchProcess::Ask(workers_));
}

void SpareWorkers::Await() {
  for (; ready_ < spares_.size(); ++ready_) BatchProcess::Await(workers_, &spares_[ready_]);
}

WaitingProcess SpareWorkers::Take() {
  Ask(1);
  if (ready_ == 0) {
    BatchProcess::Await(workers_, &spares_.front());
    ++ready_;
  }
  WaitingProcess worker = std::move(spares_.front());
  spares_.pop_front();
  --ready_;
  return worker;
}

}  // namespace kevin
