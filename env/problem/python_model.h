#pragma once
// A problem as a Python module in KernelBench's form: `class Model(nn.Module)` with `forward`, and `get_inputs` and
// `get_init_inputs`. Models trained on KernelBench expect a problem in this form; `kevin problems ID --python` prints it.
// Pure; any thread.
//
// The reference is the TorchScript text of the problem with its operators under their Python names
// (env/problem/python_operators.h). The constructor takes KernelBench's arguments (env/problem/model_facts.h), parameters
// have KernelBench's names in state_dict(), and their shapes are those of the problem at every size. A problem without
// facts has a constructor without arguments and parameters under its own names.

#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

// Runs with torch 2.11 and nothing else. The values of get_inputs() follow the distributions of the problem in kind
// (normal, uniform, integers), not number by number: verdicts use env/process/generator.h.
std::string PythonModel(const SizedProblem& problem);

// A candidate of kind `modelnew` made of that module, for admission (env/verdict/README.md).
struct PythonAnswer {
  std::string name;        // "modelnew: operators of torch"
  bool must_pass = false;  // the module itself; else the module with one mistake
  std::string source;
};

// The module itself; each element of the outputs 1 % off; all weights zero or, without weights, all outputs zero.
// Throws Error(kBadRequest) where Model draws an input itself (ModelFacts::drawn): no answer agrees with another one.
std::vector<PythonAnswer> PythonAnswers(const SizedProblem& problem);

}  // namespace kevin
