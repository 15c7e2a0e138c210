#pragma once
// A problem in the words of a prompt: where the values of its inputs come from, and what counts as correct. Pure; any
// thread.

#include <string>

#include "env/problem/problem.h"

namespace kevin {

// The values of an input: "uniform in [-0.125, 0.125]", "integers from 0 to 1023", "mixture, times 2, plus 64" (the
// rules explain the mixture), and how its rows are shifted. `with_numbers`: at one size; else a scale that depends on the
// size is its expression.
std::string ValuesText(const TensorSpec& spec, bool kernelbench_inputs, bool with_numbers);

// Whether an input has the mixture, so that the prompt must explain it.
bool HasMixture(const Problem& problem, bool kernelbench_inputs);

// Whether its reference may have products that a GPU could round to TF32; by its families.
bool HasProducts(const Problem& problem);

// The rule of env/verdict/verify.h with the numbers of this problem. `with_numbers`: as above.
std::string ToleranceText(const SizedProblem& sized, bool with_numbers);

}  // namespace kevin
