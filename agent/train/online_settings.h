#pragma once
// The options of `kevin train` that are about making turns: with --online, and for evaluations on the way.

#include <cstdint>
#include <string>
#include <vector>

namespace kevin {

struct OnlineSettings {
  bool online = false;
  std::string suite;          // that is learnt from
  int problems_per_step = 0;  // 0: the algorithm's
  int samples = 16, turns = 4;
  int64_t staleness = 0;
  // How the model is asked.
  double temperature = 0.9;
  int max_tokens = 0;   // of an answer; 0: as `kevin collect` has it
  int64_t context = 0;  // of prompt and answer; 0: the model's
  std::string sampler_device;
  int64_t sampler_tokens = 0;
  // How its kernels are judged.
  std::vector<std::string> judges;  // devices
  std::string size, isolation = "full";
  int threads = 0, parallel = 0;
  // Evaluations on the way.
  std::string eval_suite, test_suite, best_by = "mean_avg";
  int64_t eval_every = 0;
  int eval_samples = 4, eval_turns = 4;

  bool Samples() const { return online || !eval_suite.empty() || !test_suite.empty(); }
};

}  // namespace kevin
