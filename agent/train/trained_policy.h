#pragma once
// The model that a trainer holds, as a policy. Its answers say how many steps it had learnt
// (agent/train/model_version.h) and by the hash of their contents which weights they come from.

#include <functional>
#include <memory>
#include <string>

#include "agent/rollout/rollout.h"
#include "agent/train/online_settings.h"
#include "agent/train/trainer_process.h"
#include "policies/remote/remote_policy.h"

namespace kevin {

class TrainedPolicy : public Policy {
 public:
  // `name`: as episodes keep it. `device`: where it is sampled. `judge`: the environment's device. `trainer`
  // must outlive this.
  TrainedPolicy(std::string name, TrainerProcess& trainer, const TrainerProcess::Opened& opened,
                const OnlineSettings& settings, std::string device, const std::string& judge);

  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override;
  std::string Name() const override { return name_; }
  bool LoadsProcessor() const override { return device_ == "cpu"; }

  const PolicySettings& settings() const { return settings_; }

 private:
  const std::string name_, model_, device_;
  TrainerProcess& trainer_;
  std::unique_ptr<RemotePolicy> client_;
  PolicySettings settings_;
  std::string shared_gpu_;  // the lock of the GPU that it shares with the judge; empty: none
};

}  // namespace kevin
