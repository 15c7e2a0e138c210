#pragma once
// The `launch` function of a GPU candidate: found in its text, parsed, and interpreted with the shapes known.
// It reads like host code and can do nothing but arithmetic and naming what is to be launched. What it may
// contain is in prompts/ (the rules for kind `cuda`); everything else is an error that says what to write
// instead. Pure; no CUDA.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "env/gpu/launch_list.h"
#include "env/problem.h"

namespace kevin {

// What is wrong, for the policy: "line 12, column 5: ...; write ... instead", with the line itself and a
// caret.
struct LaunchError {
  int line = 0, column = 0;
  std::string message;  // all of it, positions included
};

// A candidate's text in two parts. Both keep the lines of the text, so that messages point into it.
struct SplitCandidate {
  std::string device_text;         // for the device compiler: launch and host-only helpers are blanked
  std::string host_text;           // what the interpreter reads
  std::vector<std::string> notes;  // habits that were let pass: "line 3: `extern \"C\"` is not needed"
};

struct LaunchFunctionLimits {
  int64_t steps = 1'000'000;                    // evaluated expressions and statements
  int64_t operations = 4096;                    // of the list
  int64_t workspace_bytes = int64_t{16} << 30;  // all workspaces together
};

struct InterpretedLaunch {
  SplitCandidate split;
  LaunchList list;
  std::set<std::string> kernels;  // the name expressions that the compiler must provide
};

// `void launch(const float* x, float* out)` as a candidate of kind `cuda` or `ptx` declares it.
std::string CudaLaunchSignature(const Problem& problem);

// Reads `source` of kind `cuda` or `ptx` for the problem at its size and interprets its launch function.
// Throws LaunchException.
class LaunchException;
InterpretedLaunch InterpretLaunch(const SizedProblem& problem, const std::string& kind,
                                  const std::string& source, const LaunchFunctionLimits& limits = {});

class LaunchException {
 public:
  explicit LaunchException(LaunchError error) : error_(std::move(error)) {}
  const LaunchError& error() const { return error_; }

 private:
  LaunchError error_;
};

}  // namespace kevin
