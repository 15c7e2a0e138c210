#pragma once
// A fake environment for texts with knobs: the constants that stand in place of their lines decide what happens.

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/problem/text.h"

namespace kevin::testing {

class KnobEnvironment : public Environment {
 public:
  using Values = std::map<std::string, int64_t>;

  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    const std::lock_guard lock(mutex_);
    const Values values = ValuesIn(candidate.source);
    (options.screen ? screened : judged).push_back(values);
    if (options.screen) limits.insert(options.screen_limit_us);
    if (before) before();
    Evaluation evaluation;
    evaluation.outcome = outcome(values, options);
    evaluation.candidate_hash = Sha256Hex(candidate.kind + "\n" + candidate.source);
    evaluation.key = EvaluationKey(problem, candidate, options);
    evaluation.key_parts = {{"candidate", evaluation.candidate_hash}};
    evaluation.workload.size = options.workload.size;
    evaluation.workload.precision = "fp32";
    evaluation.device = facts.device;
    evaluation.isolation = facts.isolation;
    return evaluation;
  }
  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override {
    return Sha256Hex(candidate.source + problem.content_hash + options.workload.size);
  }
  const EnvironmentFacts& Facts() const override { return facts; }

  static Measured Taking(double us) {
    Measured m;
    m.speedup = {100 / us, 99 / us, 101 / us, 0.004, 30, 3};
    m.candidate_us = us;
    m.reference_us = 100;
    m.verdict = us < 100 ? Verdict::kFast : Verdict::kSlow;
    return m;
  }

  std::function<Outcome(const Values&, const EvaluateOptions&)> outcome =
      [](const Values&, const EvaluateOptions&) { return Taking(50); };
  std::function<void()> before;          // every evaluation; it may throw
  std::vector<Values> screened, judged;  // in the order of evaluating
  std::set<double> limits;               // screen_limit_us of all screened
  EnvironmentFacts facts{"cpu: fake, 2 threads", "full", {"cpp"}, "small", ""};

 private:
  static Values ValuesIn(const std::string& source) {
    Values values;
    std::istringstream words(source);
    for (std::string word; words >> word;) {
      std::string type, name, equals;
      int64_t value = 0;
      if (word == "constexpr" && words >> type >> name >> equals >> value) values[name] = value;
    }
    return values;
  }

  std::mutex mutex_;
};

}  // namespace kevin::testing
