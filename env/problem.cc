#include "env/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "env/error.h"

namespace kevin {
namespace {

ConcreteTensor MakeConcrete(const TensorSpec& spec, const Symbols& symbols) {
  ConcreteTensor tensor;
  tensor.spec = spec;
  if (!spec.scale_text.empty()) tensor.spec.scale = TryEvaluateScale(spec.scale_text, symbols).value;
  for (const std::string& dim : spec.shape) tensor.shape.push_back(EvaluateExpression(dim, symbols));
  tensor.elements = ElementCount(tensor.shape);
  tensor.bytes = tensor.elements * DTypeBytes(spec.dtype);
  return tensor;
}

double Cost(const std::string& expression, const Symbols& symbols) {
  return static_cast<double>(EvaluateExpression(expression, symbols));
}

}  // namespace

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kBool:
      return "bool";
  }
  return "";
}

const char* DTypeCpp(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "_Float16";
    case DType::kBF16:
      return "unsigned short";
    case DType::kI64:
      return "long";
    case DType::kI32:
      return "int";
    case DType::kBool:
      return "bool";
  }
  return "";
}

int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
      return 2;
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kI32:
      return 4;
    case DType::kBool:
      return 1;
  }
  return 0;
}

const char* DistributionName(Distribution distribution) {
  switch (distribution) {
    case Distribution::kMixture:
      return "mixture";
    case Distribution::kNormal:
      return "normal";
    case Distribution::kUniform:
      return "uniform";
    case Distribution::kUniform01:
      return "uniform01";
    case Distribution::kHeavyTailed:
      return "heavy-tailed";
    case Distribution::kPositive:
      return "positive";
    case Distribution::kSigns:
      return "signs";
  }
  return "";
}

const char* StructureName(Structure structure) {
  switch (structure) {
    case Structure::kNone:
      return "none";
    case Structure::kUpper:
      return "upper";
    case Structure::kLower:
      return "lower";
    case Structure::kSymmetric:
      return "symmetric";
  }
  return "";
}

int64_t ElementCount(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

SizedProblem AtSize(const Problem& problem, const std::string& size) {
  const auto found = problem.sizes.find(size);
  if (found == problem.sizes.end()) {
    std::vector<std::string> known;
    for (const auto& [name, symbols] : problem.sizes) known.push_back(name);
    throw Error(ExitCode::kBadRequest, fmt::format("{} has no size '{}'", problem.id, size),
                fmt::format("its sizes: {}", fmt::join(known, ", ")));
  }
  SizedProblem sized;
  sized.problem = &problem;
  sized.size = size;
  sized.symbols = found->second;
  for (const TensorSpec& spec : problem.inputs) sized.inputs.push_back(MakeConcrete(spec, sized.symbols));
  for (const TensorSpec& spec : problem.outputs) sized.outputs.push_back(MakeConcrete(spec, sized.symbols));
  sized.reduction = EvaluateExpression(problem.reduction, sized.symbols);
  sized.flops = Cost(problem.flops, sized.symbols);
  sized.bytes = Cost(problem.bytes, sized.symbols);
  sized.min_flops = Cost(problem.min_flops, sized.symbols);
  sized.min_bytes = Cost(problem.min_bytes, sized.symbols);
  return sized;
}

const char* DTypeInKind(DType dtype, const std::string& kind) {
  if (kind != "cpp" && dtype == DType::kF16) return "__half";
  if (kind != "cpp" && dtype == DType::kBF16) return "__nv_bfloat16";
  return DTypeCpp(dtype);
}

std::string LaunchSignature(const Problem& problem, const std::string& kind) {
  std::vector<std::string> arguments;
  for (const TensorSpec& input : problem.inputs) {
    arguments.push_back(fmt::format("const {}* {}", DTypeInKind(input.dtype, kind), input.name));
  }
  for (const TensorSpec& output : problem.outputs) {
    arguments.push_back(fmt::format("{}* {}", DTypeInKind(output.dtype, kind), output.name));
  }
  return fmt::format("{}void launch({})", kind == "cpp" ? "extern \"C\" " : "", fmt::join(arguments, ", "));
}

}  // namespace kevin
