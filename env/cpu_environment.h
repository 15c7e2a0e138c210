#pragma once
// The CPU environment's further requests, for tools that need more than verdicts on candidates.

#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

struct DecoyResult {
  std::string name;        // "zeros", "inputs rounded to fp16", ...
  bool passed = false;     // the problem's check took it for right
  bool told_apart = true;  // false: it is right, as far as the outputs' type can tell (env/cpu/admission.h)
  std::string reason;      // why it was rejected
};

// MakeCpuEnvironment gives one of these.
class CpuEnvironment : public Environment {
 public:
  // Puts each decoy through the problem's own check.
  virtual std::vector<DecoyResult> Admit(const Problem& problem, const EvaluateOptions& options) = 0;
  // Right or wrong, without the clock: when it is right, a Measured that holds max_error and error_bound
  // alone.
  virtual Outcome Verify(const Problem& problem, const Candidate& candidate,
                         const EvaluateOptions& options) = 0;
};

std::unique_ptr<CpuEnvironment> MakeCpuEnvironmentForTools(const EnvironmentOptions& options);

}  // namespace kevin
