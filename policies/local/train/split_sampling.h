#pragma once
// One rank's part of sampling with all ranks together (split_sampler.h), from the meeting of the ranks to the end: its
// slice of the weights, brought up to date from the shards after each update, and on rank 0 the server. The other ranks
// answer with rank 0's address. All ranks are on one host.

#include <functional>
#include <memory>
#include <string>

#include "policies/local/train/ranks.h"
#include "policies/local/train/serve_training.h"
#include "policies/local/train/split_sampler.h"
#include "policies/local/train/trainer.h"

namespace kevin::local {

class SplitSampling {
 public:
  struct Parts {
    const LanguageModel& model;  // in training, sharded
    Trainer& trainer;            // of it, with split_sampler
    Ranks& ranks;                // that train
    Ranks& sums;                 // the same ranks, a group that nothing else uses
  };
  // All ranks construct it, update it in the same order, and destroy it before `parts`. `sampling.socket`: of this rank; the
  // path of rank 0's counts. Throws Error(kBadRequest) where the ranks are on several hosts, Error(kMachine) on all ranks
  // where the cache does not fit on one.
  SplitSampling(const Parts& parts, const SamplingOptions& sampling, OnFailure on_failure);
  ~SplitSampling();

  const std::string& Url() const { return url_; }
  const std::string& Name() const { return name_; }
  int ContextTokens() const { return context_; }

  // As SampledModel's; all ranks call Update.
  void SetRun(const std::string& run);
  double Update(int64_t version, const std::function<void()>& update);
  // Tells the other ranks why this one ends. Any thread.
  void Leave(const std::string& why);

 private:
  void Refresh();
  TorchRunnerOptions AgreedOptions(const SamplingOptions& sampling);
  Socket Meet(const std::string& path);

  const Parts parts_;
  SplitModel model_;
  std::shared_ptr<SplitLink> link_;          // rank 0
  std::unique_ptr<SampledModel> sampled_;    // rank 0
  std::unique_ptr<SplitFollower> follower_;  // other ranks
  std::string url_, name_;
  int context_ = 0;
};

}  // namespace kevin::local
