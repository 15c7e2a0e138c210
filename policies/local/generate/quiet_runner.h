#pragma once
// A runner that computes only while its device may be used. Measurements on a device exclude all other work on it by a lock
// of the machine, which a hold takes part in. Holds are short, so that a measurement that waits for the device begins
// within kHold and a step, however many answers are in progress; they pause meanwhile.

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "policies/local/generate/model_runner.h"

namespace kevin::local {

// Waits until the device may be used; it may be until the result is destroyed. The result is not null. Throws Error
// where the caller gives up.
using HoldDevice = std::function<std::shared_ptr<void>()>;

class QuietRunner : public ModelRunner {
 public:
  static constexpr std::chrono::milliseconds kHold{100};

  // Holds the device from the submission of a step until all steps are done, or, where there are always further ones, for
  // kHold at a time.
  QuietRunner(std::unique_ptr<ModelRunner> runner, HoldDevice hold);

  const Shape& GetShape() const override { return runner_->GetShape(); }
  // These two throw what `hold` throws.
  void Submit(std::span<const SequenceStep> steps) override;
  void CopyPage(int from, int to) override;
  std::vector<SampledToken> Wait() override;
  void GiveUpCache() override { runner_->GiveUpCache(); }
  void WeightsChanged() override { runner_->WeightsChanged(); }

 private:
  void Hold();

  const std::unique_ptr<ModelRunner> runner_;
  const HoldDevice hold_;
  std::shared_ptr<void> held_;
  std::chrono::steady_clock::time_point since_;
  int in_flight_ = 0;
  bool has_copied_ = false;  // since the latest step; it waits for that copy
  std::deque<std::vector<SampledToken>>
      early_;  // results of steps that were waited for to let go of the device
};

}  // namespace kevin::local
