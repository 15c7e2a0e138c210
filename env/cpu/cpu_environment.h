#pragma once
// The CPU environment's further requests, for tools that need more than verdicts on candidates.

#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/verdict/admission.h"

namespace kevin {

// Time of eager per call (env/cpu/session.h).
struct EagerBaseline {
  double eager_us = 0, low_us = 0, high_us = 0;  // median and quartiles
  int batches = 0;
  std::string torch_version;
};

// MakeCpuEnvironment gives one of these.
class CpuEnvironment : public Environment {
 public:
  // Puts each decoy and correct answer (env/verdict/admission.h) through the check of the problem.
  virtual std::vector<DecoyResult> Admit(const Problem& problem, const EvaluateOptions& options) = 0;
  // Eager alone, without a candidate. Throws Error.
  virtual EagerBaseline MeasureEager(const Problem& problem, const EvaluateOptions& options) = 0;
  // Correct or incorrect, without the clock: a correct candidate gives a Measured with max_error and
  // error_bound alone.
  virtual Outcome Verify(const Problem& problem, const Candidate& candidate,
                         const EvaluateOptions& options) = 0;
};

std::unique_ptr<CpuEnvironment> MakeCpuEnvironmentForTools(const EnvironmentOptions& options);

}  // namespace kevin
