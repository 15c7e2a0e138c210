#pragma once
// From the expression that a reference returns to terms: names of operations are looked up, shapes worked
// out, and composed operations taken apart. Adding an operation that existing families can write starts here.

#include <vector>

#include "policies/policy.h"
#include "policies/search/term.h"
#include "policies/search/torchscript.h"

namespace kevin::search {

struct LowerOptions {
  // Mean and variance in one pass, from sums of x - head(x); false: the mean first, then the squares around
  // it.
  bool one_pass_moments = true;
};

// Throws Unsupported for what the list above lacks.
TermPtr Lower(const Node& node, const std::vector<TaskArgument>& arguments, const LowerOptions& options);

}  // namespace kevin::search
