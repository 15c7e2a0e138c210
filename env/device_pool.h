#pragma once
// Several devices of one model as one environment. Each evaluation (at several shapes: of each shape) runs on
// the device with the fewest evaluations in progress, or on the one that had this problem last (it has a session of
// it) if that has at most two more. A device measures one candidate at a time. Verdicts do not depend on the device:
// the evaluation key names the model only. Calls may come from many threads.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

class DevicePool : public Environment {
 public:
  // At least one device. Throws Error(kBadRequest) if their models or kinds differ.
  explicit DevicePool(std::vector<std::unique_ptr<Environment>> devices);

  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override;
  std::string MachineKey(const Problem& problem, const Candidate& candidate,
                         const EvaluateOptions& options) override;
  std::string Graph(const Problem& problem, const std::string& size) override;
  void Expect(const Problem& problem, const std::string& kind, const Workload& workload) override;
  const EnvironmentFacts& Facts() const override { return facts_; }
  // On the device that had the problem last.
  std::optional<Diagnosis> Diagnose(const Problem& problem, const Candidate& candidate,
                                    const EvaluateOptions& options) override;
  void ReleaseMemory() override;

 private:
  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override;
  // The device of a problem and size from now on. Needs mutex_.
  size_t Choose(const Problem& problem, const std::string& size);

  std::vector<std::unique_ptr<Environment>> devices_;
  EnvironmentFacts facts_;  // device: "cuda:0, cuda:1: NVIDIA H200"
  std::mutex mutex_;
  std::vector<int> busy_;               // evaluations in progress, by device
  std::map<std::string, size_t> last_;  // the device of each problem and size
};

}  // namespace kevin
