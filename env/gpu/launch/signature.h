#pragma once
// Does a launch function take the problem's tensors?

#include <string>

#include "env/gpu/launch/interpreter.h"
#include "env/problem/problem.h"

namespace kevin::launch {

// One pointer for each tensor and a null stream where one is declared; registers the tensors with `list`.
// Throws LaunchException that shows the required signature.
std::vector<Value> LaunchArguments(const SourceText& source, const SizedProblem& problem,
                                   const Function& launch, size_t name_at, Interpreter* interpreter,
                                   ListBuilder* list);

}  // namespace kevin::launch
