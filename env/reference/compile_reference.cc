#include "env/reference/compile_reference.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/parser.h>
#include <torch/csrc/jit/frontend/tree_views.h>
#include <torch/jit.h>

#include <algorithm>
#include <string>

#include "env/error.h"
#include "env/problem/reference_operators.h"

namespace kevin {
namespace {

// Throws Error(kBadRequest) if a node calls what a reference may not call. Calls of functions name functions of
// the same text, which are checked too.
void CheckOperators(const torch::jit::Block* block, const std::string& path) {
  for (const torch::jit::Node* node : block->nodes()) {
    const std::string kind = node->kind().toQualString();
    if (!IsReferenceOperator(kind)) {
      throw Error(ExitCode::kBadRequest,
                  path + ": the reference calls " + kind + ", which no reference may call",
                  "a reference computes tensors from tensors: no files, no printing, no settings; "
                  "env/problem/reference_operators.cc lists what it may call");
    }
    for (const torch::jit::Block* inner : node->blocks()) CheckOperators(inner, path);
  }
}

bool HasDefault(const torch::jit::TreeRef& tree) {
  if (tree->kind() == torch::jit::TK_PARAM && torch::jit::Param(tree).defaultValue().present()) return true;
  const torch::jit::TreeList& trees = tree->trees();
  return std::any_of(trees.begin(), trees.end(), HasDefault);
}

// Before anything is compiled: the compiler runs the default values of parameters.
void CheckDefaults(const std::string& text, const std::string& path) {
  torch::jit::Parser parser(std::make_shared<torch::jit::Source>(text));
  while (parser.lexer().cur().kind != torch::jit::TK_EOF) {
    if (HasDefault(parser.parseFunction(false))) {
      throw Error(ExitCode::kBadRequest,
                  path + ": a function of the reference has a parameter with a default",
                  "pass every argument");
    }
  }
}

void CheckFunctions(const torch::jit::CompilationUnit& unit, const std::string& path) {
  for (torch::jit::Function* function : unit.get_functions()) {
    function->ensure_defined();
    if (!function->isGraphFunction())
      throw Error(ExitCode::kBadRequest, path + ": the reference calls `" + function->name() + "`");
    CheckOperators(torch::jit::toGraphFunction(*function).graph()->block(), path);
  }
}

}  // namespace

at::ScalarType TorchType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI64:
      return at::kLong;
    case DType::kI32:
      return at::kInt;
    case DType::kBool:
      return at::kBool;
  }
  return at::kFloat;
}

std::shared_ptr<torch::jit::CompilationUnit> CompiledReference(const Problem& problem) {
  if (const std::string character = UnreadableCharacter(problem.reference + problem.scale);
      !character.empty()) {
    throw Error(ExitCode::kBadRequest,
                problem.path.string() + ": the reference has a control character (" + character + ")",
                "use line feeds and tabs only");
  }
  std::shared_ptr<torch::jit::CompilationUnit> unit;
  try {
    CheckDefaults(problem.reference + "\n" + problem.scale + "\n", problem.path.string());
    unit = torch::jit::compile(problem.reference + "\n" + problem.scale + "\n");
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(
        ExitCode::kBadRequest,
        problem.path.string() + ": reference does not compile: " + std::string(error.what()).substr(0, 2000),
        "write it in TorchScript: operators as torch.NAME, no imports, no torch.nn.functional");
  }
  CheckFunctions(*unit, problem.path.string());
  return unit;
}

}  // namespace kevin
