#pragma once
// Whether the reference of a user's problem file is TorchScript, before anything is asked of a policy.

#include <string>

#include "env/problem/problem.h"

namespace kevin {

// Compiles the reference (and `scale`) of the file problem.path in a kevin-evaluator: 0.3 s. Returns "" or why it was
// not compiled here (torch is missing). Throws Error(kBadRequest) with torch's message when it does not compile.
std::string CompileReference(const Problem& problem);

}  // namespace kevin
