#pragma once
// The text of a reference as a compilation unit of TorchScript. For env/reference alone.

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/compilation_unit.h>

#include <memory>

#include "env/problem/problem.h"

namespace kevin {

at::ScalarType TorchType(DType dtype);

// `forward` and, where the problem has it, `scale`. Throws Error(kBadRequest) with the compiler's message if the
// text is not TorchScript, and if it calls an operator that no reference may call
// (env/problem/reference_operators.h).
std::shared_ptr<torch::jit::CompilationUnit> CompiledReference(const Problem& problem);

}  // namespace kevin
