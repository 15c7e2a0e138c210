#include "env/problem/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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
  tensor.spec.row_elements = tensor.shape.size() < 2 ? tensor.elements : tensor.elements / tensor.shape[0];
  return tensor;
}

// Sets the size of the block and the offset symbol of each parameter.
void PlaceParams(SizedProblem* sized, ConcreteTensor* block) {
  block->elements = 0;
  for (const ConcreteTensor& input : sized->inputs) {
    if (!input.spec.is_param) continue;
    sized->symbols[OffsetName(input.spec.name)] = block->elements;
    block->elements += (input.elements + kParamAlignment - 1) / kParamAlignment * kParamAlignment;
  }
  block->shape = {block->elements};
  block->bytes = block->elements * DTypeBytes(block->spec.dtype);
}

[[noreturn]] void NoSuchSize(const Problem& problem, const std::string& size) {
  std::vector<std::string> known;
  if (const auto set = problem.shape_sets.find(size); set != problem.shape_sets.end()) {
    for (const WeightedShape& shape : set->second) known.push_back(shape.size);
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("size '{}' of {} has {} shapes, and one is needed here", size, problem.id, known.size()),
        fmt::format("choose one: {}", fmt::join(known, ", ")));
  }
  for (const auto& [name, shapes] : problem.shape_sets) known.push_back(name);
  for (const auto& [name, symbols] : problem.sizes) known.push_back(name);
  throw Error(ExitCode::kBadRequest, fmt::format("{} has no size '{}'", problem.id, size),
              fmt::format("its sizes: {}", fmt::join(known, ", ")));
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
      return "bf16";
    case DType::kI64:
      return "long";
    case DType::kI32:
      return "int";
    case DType::kBool:
      return "bool";
  }
  return "";
}

// Arithmetic is in float. The conversion is restricted to float, else `x > 0 ? x : 0` would be an int.
const char* Bf16Cpp() {
  return R"(struct bf16 {
  unsigned short bits;
  bf16() = default;
  explicit bf16(float value) { *this = value; }
  bf16& operator=(float value) {
    const unsigned u = __builtin_bit_cast(unsigned, value);
    bits = (unsigned short)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    return *this;
  }
  template <class T> requires(__is_same(T, float)) operator T() const { return __builtin_bit_cast(float, (unsigned)bits << 16); }
};
)";
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
    case Distribution::kStored:
      return "stored";
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
  if (found == problem.sizes.end()) NoSuchSize(problem, size);
  SizedProblem sized;
  sized.problem = &problem;
  sized.size = size;
  sized.symbols = found->second;
  for (const TensorSpec& spec : problem.inputs) sized.inputs.push_back(MakeConcrete(spec, sized.symbols));
  for (const TensorSpec& spec : problem.outputs) sized.outputs.push_back(MakeConcrete(spec, sized.symbols));
  for (const TensorSpec& spec : LaunchTensors(problem)) {
    sized.arguments.push_back(MakeConcrete(spec, sized.symbols));
    if (spec.name == kParamBlockName && HasParamBlock(problem)) PlaceParams(&sized, &sized.arguments.back());
  }
  sized.reduction = EvaluateExpression(problem.reduction, sized.symbols);
  sized.flops = Cost(problem.flops, sized.symbols);
  sized.bytes = Cost(problem.bytes, sized.symbols);
  sized.min_flops = Cost(problem.min_flops, sized.symbols);
  sized.min_bytes = Cost(problem.min_bytes, sized.symbols);
  return sized;
}

std::vector<WeightedShape> ShapesOf(const Problem& problem, const std::string& size) {
  if (const auto set = problem.shape_sets.find(size); set != problem.shape_sets.end()) return set->second;
  if (!problem.sizes.contains(size)) NoSuchSize(problem, size);
  return {{size, 1}};
}

SizedProblem AtFirstShape(const Problem& problem, const std::string& size) {
  return AtSize(problem, ShapesOf(problem, size).front().size);
}

std::string ShapeName(const std::string& size, const Symbols& symbols) {
  std::vector<std::string> values;
  for (const auto& [symbol, value] : symbols) values.push_back(fmt::format("{} = {}", symbol, value));
  return fmt::format("{} ({})", size, fmt::join(values, ", "));
}

std::string FileEnding(const std::string& kind) {
  return kind == "cuda" ? "cu" : IsPython(kind) ? "py" : kind;
}

std::string KindOfFile(const std::filesystem::path& path) {
  const std::string ending = path.extension();
  if (ending == ".cpp" || ending == ".cc" || ending == ".cxx") return "cpp";
  if (ending == ".cu") return "cuda";
  if (ending == ".py") return "modelnew";
  return ending == ".ptx" ? "ptx" : "";
}

std::string LanguageOf(const std::string& kind) {
  return kind == "cuda" ? "CUDA C++" : kind == "ptx" ? "PTX" : IsPython(kind) ? "Python" : "C++";
}

std::string DeviceModel(const std::string& device) {
  const size_t name = device.find(": ");
  return name == std::string::npos ? device : device.substr(name + 2);
}

bool IsPython(const std::string& kind) { return kind == "modelnew" || kind == "triton"; }

bool IsForGpu(const std::string& kind) { return kind == "cuda" || kind == "ptx"; }

const char* DTypeInKind(DType dtype, const std::string& kind) {
  if (kind != "cpp" && dtype == DType::kF16) return "__half";
  if (kind != "cpp" && dtype == DType::kBF16) return "__nv_bfloat16";
  return DTypeCpp(dtype);
}

bool HasParamBlock(const Problem& problem) {
  const auto params = std::count_if(problem.inputs.begin(), problem.inputs.end(),
                                    [](const TensorSpec& input) { return input.is_param; });
  return static_cast<size_t>(params) > kMaxSeparateParams;
}

std::string OffsetName(const std::string& param) { return param + "_offset"; }

std::vector<TensorSpec> LaunchTensors(const Problem& problem) {
  std::vector<TensorSpec> tensors = problem.inputs;
  if (HasParamBlock(problem)) {
    TensorSpec block;
    block.name = kParamBlockName;
    block.dtype = tensors.back().dtype;
    std::erase_if(tensors, [](const TensorSpec& input) { return input.is_param; });
    block.is_param = true;
    tensors.push_back(block);
  }
  tensors.insert(tensors.end(), problem.outputs.begin(),
                 problem.outputs.begin() + static_cast<std::ptrdiff_t>(OwnOutputs(problem)));
  return tensors;
}

size_t OwnOutputs(const Problem& problem) {
  return static_cast<size_t>(std::count_if(problem.outputs.begin(), problem.outputs.end(),
                                           [](const TensorSpec& output) { return !output.is_inout; }));
}

bool HasInOuts(const Problem& problem) { return OwnOutputs(problem) < problem.outputs.size(); }

std::optional<size_t> InOutOf(const Problem& problem, size_t output) {
  const size_t own = OwnOutputs(problem);
  if (output < own) return std::nullopt;
  size_t left = output - own;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    if (problem.inputs[i].is_inout && left-- == 0) return i;
  }
  return std::nullopt;
}

bool IsOutputArgument(const Problem& problem, size_t argument) {
  const auto params = static_cast<size_t>(std::count_if(
      problem.inputs.begin(), problem.inputs.end(), [](const TensorSpec& input) { return input.is_param; }));
  return argument >= problem.inputs.size() - (HasParamBlock(problem) ? params - 1 : 0);
}

bool IsWrittenArgument(const Problem& problem, size_t argument) {
  if (IsOutputArgument(problem, argument)) return true;
  return argument < problem.inputs.size() && problem.inputs[argument].is_inout;
}

void RequireKindTakes(const Problem& problem, const std::string& kind) {
  if (!IsPython(kind) || !HasInOuts(problem)) return;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} writes into its input `{}`, and candidates of kind {} only make new tensors",
                          problem.id, problem.outputs.back().name, kind),
              "use kind cpp or cuda (--kind)");
}

std::string LaunchSignature(const Problem& problem, const std::string& kind) {
  if (kind == "modelnew") return "class ModelNew(nn.Module):";
  const std::vector<TensorSpec> tensors = LaunchTensors(problem);
  std::vector<std::string> arguments;
  if (kind == "triton") {
    for (const TensorSpec& tensor : tensors) arguments.push_back(tensor.name);
    return fmt::format("def launch({}):", fmt::join(arguments, ", "));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    arguments.push_back(fmt::format("{}{}* {}", IsWrittenArgument(problem, i) ? "" : "const ",
                                    DTypeInKind(tensors[i].dtype, kind), tensors[i].name));
  }
  return fmt::format("{}void launch({})", kind == "cpp" ? "extern \"C\" " : "", fmt::join(arguments, ", "));
}

}  // namespace kevin
