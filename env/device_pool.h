#pragma once
// Several devices of one model as one environment: a candidate (at several shapes: at each) goes to the
// device with the least to do. Each device measures one candidate at a time; verdicts do not depend on which
// device it was, since the key names the model only.

#include <memory>
#include <mutex>
#include <vector>

#include "env/environment.h"

namespace kevin {

class DevicePool : public Environment {
 public:
  // At least one. Throws Error(kBadRequest) when their models or kinds differ.
  explicit DevicePool(std::vector<std::unique_ptr<Environment>> devices);

  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override;
  std::string MachineKey(const Problem& problem, const Candidate& candidate,
                         const EvaluateOptions& options) override;
  const EnvironmentFacts& Facts() const override { return facts_; }

 private:
  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override;

  std::vector<std::unique_ptr<Environment>> devices_;
  EnvironmentFacts facts_;  // device: "cuda:0, cuda:1: NVIDIA H200"
  std::mutex mutex_;
  std::vector<int> busy_;  // evaluations under way, by device
};

}  // namespace kevin
