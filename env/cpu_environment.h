#pragma once
// The CPU environment's further requests, for tools that need more than verdicts on candidates.

#include <memory>
#include <string>
#include <vector>

#include "env/decoy_result.h"
#include "env/environment.h"

namespace kevin {

// MakeCpuEnvironment gives one of these.
class CpuEnvironment : public Environment {
 public:
  // Puts each decoy and the reference's own answers through the problem's check (env/cpu/admission.h).
  virtual std::vector<DecoyResult> Admit(const Problem& problem, const EvaluateOptions& options) = 0;
  // Right or wrong, without the clock: when it is right, a Measured that holds max_error and error_bound
  // alone.
  virtual Outcome Verify(const Problem& problem, const Candidate& candidate,
                         const EvaluateOptions& options) = 0;
};

std::unique_ptr<CpuEnvironment> MakeCpuEnvironmentForTools(const EnvironmentOptions& options);

}  // namespace kevin
