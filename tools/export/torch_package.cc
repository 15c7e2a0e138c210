#include "tools/export/torch_package.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/problem/text.h"
#include "env/process/spawn.h"
#include "tools/export/launch_code.h"
#include "tools/export/quote.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNameDigits = 10;  // of the hash in the namespace

std::string Part(const std::string& name) {
  const fs::path path = PackageParts() / name;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || text.empty())
    throw Error(ExitCode::kMachine, path.string() + ": cannot be read", "install Kevin again");
  return text;
}

// The shapes of the size, each with its kernel.
struct Shapes {
  std::vector<SizedProblem> sized;
  std::vector<std::vector<int64_t>> workspaces;  // bytes, of each
};

// Input-outputs once, among the inputs.
std::vector<const ConcreteTensor*> TensorsOf(const SizedProblem& problem) {
  std::vector<const ConcreteTensor*> tensors;
  for (const ConcreteTensor& t : problem.inputs) tensors.push_back(&t);
  for (size_t o = 0; o < OwnOutputs(*problem.problem); ++o) tensors.push_back(&problem.outputs[o]);
  return tensors;
}

size_t FirstParameter(const SizedProblem& problem) {
  size_t at = 0;
  while (at < problem.inputs.size() && !problem.inputs[at].spec.is_param) ++at;
  return at;
}

int64_t BlockElements(const SizedProblem& problem) {
  int64_t at = 0;
  for (const ConcreteTensor& t : problem.inputs) {
    if (t.spec.is_param) at += (t.elements + kParamAlignment - 1) / kParamAlignment * kParamAlignment;
  }
  return at;
}

std::vector<int64_t> BlockOffsets(const SizedProblem& problem) {
  std::vector<int64_t> offsets;
  for (const ConcreteTensor& t : problem.inputs) {
    if (t.spec.is_param) offsets.push_back(problem.symbols.at(OffsetName(t.spec.name)));
  }
  return offsets;
}

// --- Kernels ---

std::string HostKernel(const SizedProblem& problem, const std::string& source) {
  const bool has_bf16 =
      std::any_of(problem.arguments.begin(), problem.arguments.end(),
                  [](const ConcreteTensor& tensor) { return tensor.spec.dtype == DType::kBF16; });
  std::string text = "#include <cmath>\n#include <cstdint>\n#include <cstring>\n\n", arguments;
  if (has_bf16) text += Bf16Cpp();
  for (const auto& [name, value] : problem.symbols)
    text += fmt::format("constexpr long {} = {};\n", name, value);
  const std::vector<TensorSpec> tensors = LaunchTensors(*problem.problem);
  for (size_t at = 0; at < tensors.size(); ++at) {
    arguments +=
        fmt::format("{}({}{}*)buffers[{}]", at ? ", " : "",
                    IsWrittenArgument(*problem.problem, at) ? "" : "const ", DTypeCpp(tensors[at].dtype), at);
  }
  return text + "\n" + source + "\nextern \"C\" void kevin_kernel(char* const* buffers) { launch(" +
         arguments + "); }\n";
}

// Attributes and constants belong to a device, and a first call may come while a graph is captured.
constexpr char kDeviceKernel[] = R"(
// nullptr, or what is wrong.
extern "C" const char* kevin_kernel(char* const* buffers, int device, void* stream) {
  constexpr int kDevices = 64;
  static std::once_flag once[kDevices];
  static cudaError_t ready[kDevices];
  if (device < 0 || device >= kDevices) return "no such device";
  std::call_once(once[device], [device] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaStream_t own = nullptr;
    ready[device] = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    if (ready[device] == cudaSuccess) ready[device] = kevin_launch::SetUp(own);
    if (own != nullptr) cudaStreamDestroy(own);
    cudaThreadExchangeStreamCaptureMode(&mode);
  });
  const cudaError_t error =
      ready[device] == cudaSuccess ? kevin_launch::Run(buffers, static_cast<cudaStream_t>(stream)) : ready[device];
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
)";

std::string KernelText(const PackageRequest& request, const SizedProblem& problem,
                       std::vector<int64_t>* workspaces) {
  const std::string heading = CppComments(request.heading) + "\n";
  if (request.kind == "cuda") {
    LaunchCode launch = WriteLaunchCode(problem, request.kind, request.source);
    *workspaces = std::move(launch.workspace_bytes);
    return heading + "#include <mutex>\n" + launch.text + kDeviceKernel;
  }
  if (request.kind == "cpp") return heading + HostKernel(problem, request.source);
  throw Error(ExitCode::kBadRequest,
              fmt::format("a kernel of kind {} cannot be a PyTorch operator", request.kind),
              "kinds cuda and cpp can; without --as the source is exported as it is");
}

// --- operator_data.h ---

std::string TypeText(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "Type::kF32";
    case DType::kF16:
      return "Type::kF16";
    case DType::kBF16:
      return "Type::kBF16";
    case DType::kI64:
      return "Type::kI64";
    case DType::kI32:
      return "Type::kI32";
    case DType::kBool:
      return "Type::kBool";
  }
  return "Type::kF32";
}

std::string Schema(const SizedProblem& problem) {
  std::string in, out;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const TensorSpec& spec = problem.inputs[i].spec;
    in +=
        fmt::format("{}Tensor{} {}", i ? ", " : "", spec.is_inout ? fmt::format("(a{}!)", i) : "", spec.name);
  }
  const size_t own = OwnOutputs(*problem.problem);
  for (size_t i = 0; i < own; ++i) out += i ? ", Tensor" : "Tensor";
  return fmt::format("({}) -> {}", in, own == 1 ? out : "(" + out + ")");
}

std::string Extents(const SizedProblem& problem) {
  std::string text;
  for (const ConcreteTensor* t : TensorsOf(problem)) {
    for (const int64_t extent : t->shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "{" + (text.empty() ? "0" : text) + "}";
}

std::string ArrayRows(const std::vector<std::string>& rows) {
  return fmt::format("{{{}}}", fmt::join(rows, ",\n    "));
}

std::string DataHeader(const Shapes& shapes, const std::string& space, bool gpu) {
  const SizedProblem& first = shapes.sized[0];
  const bool has_block = HasParamBlock(*first.problem);
  std::vector<std::string> names, types, type_names, ranks, firsts, extents, offsets, elements, counts, bytes,
      written;
  size_t at = 0, most = 1;
  for (const ConcreteTensor* t : TensorsOf(first)) {
    names.push_back(CppString(t->spec.name));
    types.push_back(TypeText(t->spec.dtype));
    type_names.push_back(CppString(DTypeName(t->spec.dtype)));
    ranks.push_back(std::to_string(t->shape.size()));
    firsts.push_back(std::to_string(at));
    at += t->shape.size();
  }
  for (const ConcreteTensor& t : first.inputs) written.emplace_back(t.spec.is_inout ? "true" : "false");
  for (const auto& workspaces : shapes.workspaces) most = std::max(most, workspaces.size());
  for (size_t i = 0; i < shapes.sized.size(); ++i) {
    extents.push_back(Extents(shapes.sized[i]));
    offsets.push_back(has_block ? fmt::format("{{{}}}", fmt::join(BlockOffsets(shapes.sized[i]), ", "))
                                : "{0}");
    elements.push_back(std::to_string(has_block ? BlockElements(shapes.sized[i]) : 0));
    counts.push_back(std::to_string(shapes.workspaces[i].size()));
    bytes.push_back(
        shapes.workspaces[i].empty() ? "{0}" : fmt::format("{{{}}}", fmt::join(shapes.workspaces[i], ", ")));
  }
  const size_t params = has_block ? first.inputs.size() - FirstParameter(first) : 1;
  return fmt::format(
      "// The tensors of the operator, inputs first, and the shapes that it has kernels for.\n#pragma once\n\n{0}"
      "#include <cstdint>\n\n#define KEVIN_NAMESPACE {1}\n#define KEVIN_NAME \"{1}\"\n#define KEVIN_SCHEMA {2}\n\n"
      "enum class Type {{ kF32, kF16, kBF16, kI64, kI32, kBool }};\n\n"
      "constexpr bool kOnGpu = {3};\nconstexpr int kInputs = {4}, kOutputs = {5}, kShapes = {6};\n"
      "constexpr bool kInOut[] = {{{21}}};  // of each input: whether the kernel writes into it\n"
      "constexpr const char* kNames[] = {{{7}}};\nconstexpr Type kTypes[] = {{{8}}};\n"
      "constexpr const char* kTypeNames[] = {{{9}}};\nconstexpr int kRanks[] = {{{10}}};\n"
      "constexpr int kFirstExtent[] = {{{11}}};  // of each tensor in a row of kExtents\n"
      "constexpr int64_t kExtents[kShapes][{12}] = {13};\n\n"
      "// Parameters from kBlockBegin on are one block (-1: there is none); offsets in elements.\n"
      "constexpr int kBlockBegin = {14};\nconstexpr int64_t kOffsets[kShapes][{15}] = {16};\n"
      "constexpr int64_t kBlockElements[kShapes] = {{{17}}};\n\nconstexpr int kMostWorkspaces = {18};\n"
      "constexpr int kWorkspaceCount[kShapes] = {{{19}}};\n"
      "constexpr int64_t kWorkspaceBytes[kShapes][kMostWorkspaces] = {20};\n",
      gpu ? "#ifndef USE_CUDA\n#define USE_CUDA\n#endif\n" : "", space, CppString(Schema(first)), gpu,
      first.inputs.size(), OwnOutputs(*first.problem), shapes.sized.size(), fmt::join(names, ", "),
      fmt::join(types, ", "), fmt::join(type_names, ", "), fmt::join(ranks, ", "), fmt::join(firsts, ", "),
      std::max<size_t>(at, 1), ArrayRows(extents), has_block ? static_cast<int>(FirstParameter(first)) : -1,
      params, ArrayRows(offsets), fmt::join(elements, ", "), most, fmt::join(counts, ", "), ArrayRows(bytes),
      fmt::join(written, ", "));
}

// --- The Python file ---

std::string PythonBool(bool value) { return value ? "True" : "False"; }

std::string PythonTuple(const std::vector<std::string>& items) {
  std::string text = "(";
  for (const std::string& item : items) text += item + ", ";
  if (items.size() > 1) text.erase(text.size() - 2);
  if (items.size() == 1) text.pop_back();
  return text + ")";
}

std::string ShapesOfTensors(const std::vector<ConcreteTensor>& tensors) {
  std::vector<std::string> shapes;
  for (const ConcreteTensor& t : tensors) {
    std::vector<std::string> extents;
    for (const int64_t extent : t.shape) extents.push_back(std::to_string(extent));
    shapes.push_back(PythonTuple(extents));
  }
  return PythonTuple(shapes);
}

std::string StoredFile(const TensorSpec& spec) { return "stored_" + spec.name + ".bin"; }

// How each input is drawn: (distribution, scale at each shape, offset, structure, file of stored values).
std::string DrawnInputs(const Shapes& shapes) {
  std::string text;
  for (size_t i = 0; i < shapes.sized[0].inputs.size(); ++i) {
    const TensorSpec& spec = shapes.sized[0].inputs[i].spec;
    std::vector<std::string> scales;
    for (const SizedProblem& sized : shapes.sized)
      scales.push_back(fmt::format("{:.9g}", sized.inputs[i].spec.scale));
    text +=
        fmt::format("    ({}, [{}], {:.9g}, {}, {}),\n", PythonString(DistributionName(spec.distribution)),
                    fmt::join(scales, ", "), spec.offset, PythonString(StructureName(spec.structure)),
                    spec.stored ? PythonString(StoredFile(spec)) : "None");
  }
  return "[\n" + text + "]";
}

std::string NameList(const SizedProblem& problem, bool dtypes) {
  std::vector<std::string> names;
  for (const ConcreteTensor* t : TensorsOf(problem)) {
    if (!dtypes && names.size() == problem.inputs.size()) break;
    names.push_back(PythonString(dtypes ? DTypeName(t->spec.dtype) : t->spec.name));
  }
  return fmt::format("[{}]", fmt::join(names, ", "));
}

std::string Blocks(const Shapes& shapes) {
  if (!HasParamBlock(*shapes.sized[0].problem)) return "None";
  std::string text;
  for (const SizedProblem& sized : shapes.sized)
    text += fmt::format("([{}], {}), ", fmt::join(BlockOffsets(sized), ", "), BlockElements(sized));
  return "[" + text + "]";
}

std::vector<ConcreteTensor> OwnOutputsOf(const SizedProblem& sized) {
  return {sized.outputs.begin(),
          sized.outputs.begin() + static_cast<std::ptrdiff_t>(OwnOutputs(*sized.problem))};
}

std::string InOutList(const SizedProblem& problem) {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    if (problem.inputs[i].spec.is_inout) numbers.push_back(i);
  }
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string ShapeRows(const Shapes& shapes) {
  std::string text;
  for (const SizedProblem& sized : shapes.sized)
    text +=
        fmt::format("    ({}, {}),\n", ShapesOfTensors(sized.inputs), ShapesOfTensors(OwnOutputsOf(sized)));
  return "[  # each: the shapes of the inputs, and of the outputs\n" + text + "]";
}

// The description of the module as one JSON text; checked, because a record may come from anyone.
std::string Origin(const Problem& problem) {
  nlohmann::json origin = nlohmann::json::parse(problem.module->details, nullptr, false);
  if (!origin.is_object())
    throw Error(ExitCode::kBadRequest, problem.id + ": the description of its module is not a JSON object",
                "import the module again");
  const std::string kChanged = "changed";
  if (origin.contains(kChanged) && !origin[kChanged].empty() && !HasInOuts(problem))
    throw Error(ExitCode::kBadRequest,
                problem.id + ": it was imported when written arguments were copied back",
                "import the module again");
  origin["class"] = problem.module->class_name;
  origin["import"] = problem.module->import;
  return origin.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string PythonFile(const PackageRequest& request, const Shapes& shapes, const std::string& space,
                       const std::string& folder) {
  const Problem& problem = *request.problem;
  const SizedProblem& first = shapes.sized[0];
  std::string names;
  for (const ConcreteTensor& t : first.inputs) names += (names.empty() ? "" : ", ") + t.spec.name;
  const std::string about =
      fmt::format("{} ({}): a kernel as a PyTorch operator.\n\n    run({})    the kernel\n", problem.id,
                  problem.name, names) +
      (problem.module ? fmt::format("    {}    in place of the original\n", problem.module->class_name) : "");
  std::string text = PythonComments(request.heading) + PythonText(about) + "\n\n";
  text += fmt::format("NAMESPACE = {}  # in torch.ops\nDEVICE = {}\nFOLDER = {}  # of the kernel's sources\n",
                      PythonString(space), PythonString(request.kind == "cuda" ? "cuda" : "cpu"),
                      PythonString(folder));
  text += fmt::format("INFERENCE_ONLY = {}\nNAMES = {}\nDTYPES = {}  # of the inputs, then of the outputs\n",
                      PythonBool(request.inference_only || HasInOuts(problem)), NameList(first, false),
                      NameList(first, true));
  text += fmt::format("INOUTS = {}  # inputs that the kernel writes into\n", InOutList(first));
  text += fmt::format("FIRST_PARAMETER = {}\nPARAMETERS_IN_DICT = {}\nBLOCK_OFFSETS = {}\nSHAPES = {}\n",
                      FirstParameter(first), PythonBool(problem.has_param_dict), Blocks(shapes),
                      ShapeRows(shapes));
  text += "DRAWN = " + DrawnInputs(shapes) + "\n";
  text +=
      "CPU_FLAGS = [\"-std=c++20\", \"-O3\", \"-march=native\", \"-fopenmp\", \"-w\"]\n"
      "CUDA_FLAGS = [\"-O3\", \"-std=c++20\", \"--expt-relaxed-constexpr\", \"-w\", \"-U__CUDA_NO_HALF_OPERATORS__\",\n"
      "              \"-U__CUDA_NO_HALF_CONVERSIONS__\", \"-U__CUDA_NO_HALF2_OPERATORS__\",\n"
      "              \"-U__CUDA_NO_BFLOAT16_CONVERSIONS__\"]\n";
  text += "REFERENCE = " + PythonText(problem.reference) + "\n";
  if (problem.module) text += "ORIGIN = " + PythonString(Origin(problem)) + "\n";
  return text + Part("operator_part.py") +
         (problem.module ? Part("arguments_part.py") + Part("module_part.py") + Part("drop_in_part.py") : "");
}

}  // namespace

fs::path PackageParts() {
  const fs::path installed = ProgramDirectory().parent_path() / "share/kevin/package";
  std::error_code error;
  return fs::exists(installed / "operator_part.py", error) ? installed : fs::path(KEVIN_SOURCE_PACKAGE);
}

TorchPackage WriteTorchPackage(const PackageRequest& request) {
  const Problem& problem = *request.problem;
  const bool gpu = request.kind == "cuda";
  TorchPackage package;
  Shapes shapes;
  std::string content = problem.reference + problem.source;
  for (const auto& [size, weight] : ShapesOf(problem, request.size)) {
    shapes.sized.push_back(AtSize(problem, size));
    shapes.workspaces.emplace_back();
    const std::string name = fmt::format("kernel{}.{}", shapes.sized.size() - 1, gpu ? "cu" : "cpp");
    package.kernel_files[name] = KernelText(request, shapes.sized.back(), &shapes.workspaces.back());
    content += package.kernel_files[name] + Extents(shapes.sized.back());
  }
  for (const TensorSpec& input : problem.inputs) {
    if (input.stored) package.kernel_files[StoredFile(input)] = *input.stored;
  }
  package.kernel_files["operator.cpp"] = Part("operator.cpp");
  content +=
      package.kernel_files["operator.cpp"] + Part("operator_part.py") + (request.inference_only ? "i" : "");
  package.name = request.name.empty() ? Identifier("kevin_", problem.id) : request.name;
  package.space =
      Identifier("kevin_", problem.id).substr(0, 80) + "_" + Sha256Hex(content).substr(0, kNameDigits);
  package.kernel_files["operator_data.h"] = DataHeader(shapes, package.space, gpu);
  if (problem.module && problem.module->import.empty())
    package.kernel_files["original.py"] = problem.source + "\n";
  package.python = PythonFile(request, shapes, package.space, package.name + "_kernel");
  return package;
}

}  // namespace kevin
