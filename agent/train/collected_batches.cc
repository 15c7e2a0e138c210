#include "agent/train/collected_batches.h"

#include <chrono>

namespace kevin {
namespace {

constexpr std::chrono::milliseconds kLook{100};

}  // namespace

CollectedBatches::CollectedBatches(int64_t done, int64_t steps, int64_t ahead, Collect collect, Make make,
                                   const std::atomic<bool>* asked_to_drain,
                                   const std::atomic<bool>* asked_to_stop)
    : ahead_(ahead),
      collect_(std::move(collect)),
      make_(std::move(make)),
      asked_to_drain_(asked_to_drain),
      asked_to_stop_(asked_to_stop),
      learnt_(done),
      thread_([this, done, steps] { Work(done + 1, steps); }) {}

CollectedBatches::~CollectedBatches() {
  drain_ = stop_ = true;
  wake_.notify_all();
  thread_.join();
}

void CollectedBatches::Work(int64_t first, int64_t steps) {
  try {
    for (int64_t step = first; step <= steps; ++step) {
      std::unique_lock lock(mutex_);
      while (learnt_ < step - 1 - ahead_ && !drain_) wake_.wait_for(lock, kLook);
      lock.unlock();
      const auto run = drain_ ? std::nullopt : collect_(step, &drain_, &stop_);
      lock.lock();
      if (run) runs_[step] = *run;
      broken_off_ = !run;
      wake_.notify_all();
      if (!run) return;
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    wake_.notify_all();
  }
}

std::optional<LearnBatch> CollectedBatches::Take(int64_t step) {
  std::unique_lock lock(mutex_);
  while (!runs_.contains(step) && !error_ && !broken_off_) {
    wake_.wait_for(lock, kLook);
    if (*asked_to_drain_) drain_ = true;
    if (*asked_to_stop_) stop_ = true;
  }
  if (runs_.contains(step)) {
    const std::string run = runs_.at(step);
    lock.unlock();
    return make_(step, run);
  }
  if (error_) std::rethrow_exception(error_);
  return std::nullopt;
}

void CollectedBatches::Learnt(int64_t step) {
  const std::lock_guard lock(mutex_);
  learnt_ = step;
  wake_.notify_all();
}

}  // namespace kevin
