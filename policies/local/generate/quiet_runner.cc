#include "policies/local/generate/quiet_runner.h"

#include <utility>

namespace kevin::local {

QuietRunner::QuietRunner(std::unique_ptr<ModelRunner> runner, HoldDevice hold)
    : runner_(std::move(runner)), hold_(std::move(hold)) {}

void QuietRunner::Hold() {
  const auto now = std::chrono::steady_clock::now();
  if (held_ && !has_copied_ && now - since_ >= kHold) {
    for (; in_flight_ > 0; --in_flight_) early_.push_back(runner_->Wait());
    held_.reset();
  }
  if (held_) return;
  held_ = hold_();
  since_ = std::chrono::steady_clock::now();
}

void QuietRunner::Submit(std::span<const SequenceStep> steps) {
  Hold();
  runner_->Submit(steps);
  ++in_flight_;
  has_copied_ = false;
}

void QuietRunner::CopyPage(int from, int to) {
  Hold();
  runner_->CopyPage(from, to);
  has_copied_ = true;
}

std::vector<SampledToken> QuietRunner::Wait() {
  if (!early_.empty()) {
    std::vector<SampledToken> tokens = std::move(early_.front());
    early_.pop_front();
    return tokens;
  }
  std::vector<SampledToken> tokens = runner_->Wait();
  --in_flight_;
  if (in_flight_ == 0 && !has_copied_) held_.reset();
  return tokens;
}

}  // namespace kevin::local
