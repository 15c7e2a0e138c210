#pragma once
// `kevin train --online --sampler openai:MODEL@URL`: a model server makes the turns, and takes the weights in training
// after each step (policies/remote/weight_update.h). They lie in OUT/sampler, where also vLLM must have been started: a model's
// folder that is replaced whole, and no checkpoint.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "agent/rollout/rollout.h"
#include "policies/remote/remote_policy.h"

namespace kevin {

struct OnlineSettings;  // agent/train/rollouts.h

// Writes a model, as a Hugging Face folder, to a path where nothing is.
using ModelWriter = std::function<void(const std::filesystem::path& folder)>;
// Links to the files of `model`, or copies of them where links cannot be.
ModelWriter CopyOf(const std::filesystem::path& model);

class ServedSampler : public Policy {
 public:
  // `name`: as stored with episodes. `run`: of the training run, for weights_hash. `context`: the model's, in tokens.
  // `model`: copied to `folder` by the first of several ranks, unless that exists, so that a server can be started on it. Asks
  // the server which log-probabilities it returns; throws Error as RemotePolicy::RequireLogprobsOf does.
  ServedSampler(std::string name, std::string run, const OnlineSettings& settings,
                const std::filesystem::path& model, std::filesystem::path folder, bool is_first,
                int64_t context);

  // The server has the weights that `write` writes, which had learnt `steps`, afterwards. No answer may be under way.
  // Returns what was called. Throws Error as UpdateWeights does, and kBroken when the disk is full.
  std::string Load(const ModelWriter& write, int64_t steps);
  // Another rank has called Load.
  void Follow(int64_t steps) { steps_ = steps; }

  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override;
  std::string Name() const override { return name_; }
  const PolicySettings& settings() const { return settings_; }

 private:
  const std::string name_, run_;
  const std::filesystem::path folder_;
  RemoteOptions options_;
  std::unique_ptr<RemotePolicy> client_;
  PolicySettings settings_;
  std::atomic<int64_t> steps_{0};  // that the served weights had learnt
};

// The same options as those of the model in training: temperature as asked for, the whole distribution.
struct PolicyOptions;
PolicyOptions OnlinePolicyOptions(const OnlineSettings& settings, int64_t context);

}  // namespace kevin
