#pragma once
// What the search policy writes first for a problem. The graphs of references come from a process of kevin-evaluator
// in the folder of the calling program, and from the cache folder (CacheDirectory). Thread-safe.

#include <string>

#include "env/problem/problem.h"
#include "policies/policy.h"

namespace kevin::testing {

// Of the first turn, with its graph: `problem` is in its precision, and `size` is of one shape.
Task SearchTask(const Problem& problem, const std::string& size, const std::string& kind);

// The text with the first setting of every knob. Empty where the policy says that it cannot, or where its reply cannot be
// read (the text is too long); `why` then says so. Without `why` this throws Error.
std::string SearchText(const Problem& problem, const std::string& size, const std::string& kind,
                       std::string* why = nullptr);

}  // namespace kevin::testing
