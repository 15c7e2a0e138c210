#pragma once
// What a model in training is worth on problems that it does not learn from.

#include <string>

#include "agent/events.h"
#include "trajectories/store.h"

namespace kevin {

struct EvaluationTerms {
  int64_t step = 0;  // that the model had learnt
  std::string suite;
  std::string split;  // "dev" or "test"
  int episodes = 4, turns = 4;
  std::string best_by;  // a metric of kevin report
};

// The event `evaluation_step`: step, suite, split, run, problems, episodes, turns; the metrics of kevin
// report over all problems by name, each {value, low, high}; `serial` and `parallel`, which spend the same
// budget of min(episodes, turns) kernels a problem on one episode or on first turns alone; `budgets`, all
// splits of all budgets; `best_by` and its `value`.
// Throws Error(kBadRequest) for a metric that there is not.
Json EvaluationEvent(Store& store, const std::string& run, const EvaluationTerms& terms);

// "evaluation  step 10  core: solved 3/8  mean 0.42x (0.3 to 0.6)  serial 0.5x, parallel 0.4x of 4 kernels"
std::string EvaluationLine(const Json& event);

// Throws Error(kBadRequest) for a name that is no metric of `kevin report` where more is better.
void RequireMetric(const std::string& name);

}  // namespace kevin
