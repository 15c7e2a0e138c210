#include "tools/export/model_new.h"

#include <fmt/format.h>

#include "env/error.h"
#include "tools/export/launch_code.h"
#include "tools/export/quote.h"

namespace kevin {
namespace {

std::string ModuleName(const std::string& problem) { return Identifier("kevin_", problem); }

std::string TorchType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "at::kFloat";
    case DType::kF16:
      return "at::kHalf";
    case DType::kBF16:
      return "at::kBFloat16";
    case DType::kI64:
      return "at::kLong";
    case DType::kI32:
      return "at::kInt";
    case DType::kBool:
      return "at::kBool";
  }
  return "at::kFloat";
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("{{{}}}", fmt::join(shape, ", "));
}

std::string Parameters(const SizedProblem& problem) {
  std::string text;
  for (const ConcreteTensor& t : problem.inputs)
    text += fmt::format("{}const at::Tensor& {}", text.empty() ? "" : ", ", t.spec.name);
  return text;
}

std::string ReturnType(const SizedProblem& problem) {
  if (problem.outputs.size() == 1) return "at::Tensor";
  std::string types;
  for (size_t i = 0; i < problem.outputs.size(); ++i) types += i ? ", at::Tensor" : "at::Tensor";
  return "std::tuple<" + types + ">";
}

// Many parameters go to the kernel as one block: copied into it at every call, since they may have changed. The
// statements that make the tensor `params`.
std::string ParamBlockCopies(const SizedProblem& problem) {
  std::string copies, type;
  int64_t at = 0;
  for (const ConcreteTensor& t : problem.inputs) {
    if (!t.spec.is_param) continue;
    int64_t elements = 1;
    for (const int64_t extent : t.shape) elements *= extent;
    type = TorchType(t.spec.dtype);
    copies += fmt::format("  {}.narrow(0, {}L, {}L).copy_({}.reshape({{-1}}));\n", kParamBlockName, at,
                          elements, t.spec.name);
    at += (elements + kParamAlignment - 1) / kParamAlignment * kParamAlignment;
  }
  return fmt::format("  at::Tensor {} = at::empty({{{}L}}, {}.options().dtype({}));\n", kParamBlockName, at,
                     problem.inputs[0].spec.name, type) +
         copies;
}

// The host side: checks, outputs, workspaces, and one call of `kevin_kernel`.
std::string OperatorText(const SizedProblem& problem, bool gpu, const std::vector<int64_t>& workspaces) {
  std::string body, pointers;
  const bool has_block = HasParamBlock(*problem.problem);
  for (const ConcreteTensor& t : problem.inputs) {
    body += fmt::format("  Expect({}, {}, {}, {});\n", t.spec.name, CppString(t.spec.name),
                        TorchType(t.spec.dtype), ShapeText(t.shape));
    if (has_block && t.spec.is_param) continue;
    pointers += fmt::format("{}(char*){}.const_data_ptr()", pointers.empty() ? "" : ", ", t.spec.name);
  }
  if (has_block) {
    body += ParamBlockCopies(problem);
    pointers += fmt::format(", (char*){}.const_data_ptr()", kParamBlockName);
  }
  const std::string first = problem.inputs[0].spec.name;
  if (gpu) body += fmt::format("  const c10::cuda::CUDAGuard guard({}.device());\n", first);
  std::string outputs;
  for (const ConcreteTensor& t : problem.outputs) {
    body += fmt::format("  at::Tensor {} = at::empty({}, {}.options().dtype({}));\n", t.spec.name,
                        ShapeText(t.shape), first, TorchType(t.spec.dtype));
    pointers += fmt::format(", (char*){}.mutable_data_ptr()", t.spec.name);
    outputs += (outputs.empty() ? "" : ", ") + t.spec.name;
  }
  for (size_t i = 0; i < workspaces.size(); ++i) {
    body += fmt::format("  at::Tensor workspace{} = at::empty({{{}L}}, {}.options().dtype(at::kByte));\n", i,
                        std::max<int64_t>(workspaces[i], 1), first);
    pointers += fmt::format(", (char*)workspace{}.mutable_data_ptr()", i);
  }
  body += "  char* const buffers[] = {" + pointers + "};\n";
  body += gpu ? "  const char* const error = kevin_kernel(buffers, c10::cuda::getCurrentCUDAStream());\n  "
                "TORCH_CHECK(error == nullptr, \"the kernel cannot be launched: \", error);\n"
              : "  kevin_kernel(buffers);\n";
  body += problem.outputs.size() == 1 ? "  return " + outputs + ";\n"
                                      : "  return std::make_tuple(" + outputs + ");\n";
  return fmt::format(
      "static void Expect(const at::Tensor& tensor, const char* name, at::ScalarType type, at::IntArrayRef "
      "shape) {{\n"
      "  TORCH_CHECK(tensor.{}, name, \" must be on a {}\");\n"
      "  TORCH_CHECK(tensor.scalar_type() == type, name, \" must be \", type);\n"
      "  TORCH_CHECK(tensor.sizes() == shape, name, \" must have the shape \", shape, \"; this kernel is "
      "made for no "
      "other\");\n"
      "  TORCH_CHECK(tensor.is_contiguous(), name, \" must be contiguous\");\n}}\n\n{} run({}) {{\n{}}}\n",
      gpu ? "is_cuda()" : "is_cpu()", gpu ? "CUDA device" : "CPU", ReturnType(problem), Parameters(problem),
      body);
}

std::string Includes(bool gpu) {
  return gpu ? "#include <ATen/ATen.h>\n#include <c10/cuda/CUDAGuard.h>\n#include <c10/cuda/CUDAStream.h>\n"
             : "#include <ATen/ATen.h>\n";
}

std::string KernelDeclaration(bool gpu) {
  return gpu ? "const char* kevin_kernel(char* const* buffers, cudaStream_t stream);\n\n"
             : "void kevin_kernel(char* const* buffers);\n\n";
}

struct ExtensionKernel {
  std::string text;
  std::vector<int64_t> workspaces;
};

// The kernel and `kevin_kernel`, which launches it.
ExtensionKernel KernelFile(const SizedProblem& problem, const std::string& kind, const std::string& source) {
  if (kind == "cuda") {
    LaunchCode launch = WriteLaunchCode(problem, kind, source);
    return {
        launch.text +
            "\n// nullptr, or what is wrong.\nconst char* kevin_kernel(char* const* buffers, cudaStream_t "
            "stream) {\n"
            "  static const cudaError_t ready = kevin_launch::SetUp();\n  const cudaError_t error = ready == "
            "cudaSuccess ? kevin_launch::Run(buffers, stream) : ready;\n  return error == cudaSuccess ? "
            "nullptr : "
            "cudaGetErrorString(error);\n}\n",
        launch.workspace_bytes};
  }
  if (kind != "cpp") {
    throw Error(ExitCode::kBadRequest,
                fmt::format("a kernel of kind {} cannot be a ModelNew of KernelBench", kind),
                "without --as the source is exported as it is");
  }
  std::string text = "#include <cmath>\n#include <cstdint>\n#include <cstring>\n\n", arguments;
  for (const auto& [name, value] : problem.symbols)
    text += fmt::format("constexpr long {} = {};\n", name, value);
  const std::vector<TensorSpec> tensors = LaunchTensors(*problem.problem);
  for (size_t at = 0; at < tensors.size(); ++at) {
    const bool is_output = at + problem.outputs.size() >= tensors.size();
    arguments += fmt::format("{}({}{}*)buffers[{}]", at ? ", " : "", is_output ? "" : "const ",
                             DTypeCpp(tensors[at].dtype), at);
  }
  return {text + source + "\nvoid kevin_kernel(char* const* buffers) { launch(" + arguments + "); }\n", {}};
}

}  // namespace

std::string WriteModelNew(const SizedProblem& problem, const std::string& kind, const std::string& source,
                          const std::vector<std::string>& heading) {
  if (HasInOuts(*problem.problem))
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{} writes into its input `{}`, and a ModelNew of KernelBench returns new tensors",
                    problem.problem->id, problem.outputs.back().spec.name),
        "export it with --as torch-package");
  const bool gpu = kind == "cuda";
  const std::string architecture = gpu ? ArchitectureFlag(source) : "";
  const std::string cuda_part =
      !gpu ? ""
           : fmt::format(
                 "cuda_sources=[KERNEL, OPERATOR],\n    extra_cuda_cflags=[\"-O3\", \"-std=c++20\", "
                 "\"--expt-relaxed-constexpr\"{}],\n    ",
                 architecture.empty() ? "" : ", " + PythonString(architecture));
  const ExtensionKernel kernel = KernelFile(problem, kind, source);
  std::string names, members, parameters;
  for (const ConcreteTensor& t : problem.inputs) {
    names += (names.empty() ? "" : ", ") + (t.spec.is_param ? "self." + t.spec.name : t.spec.name);
    if (t.spec.is_param) {
      members += fmt::format("        self.{} = torch.nn.Parameter(torch.empty({}))\n", t.spec.name,
                             fmt::join(t.shape, ", "));
    } else {
      parameters += ", " + t.spec.name;
    }
  }
  const std::string operator_text =
      Includes(gpu) + "\n" + KernelDeclaration(gpu) + OperatorText(problem, gpu, kernel.workspaces);
  const std::string declaration =
      fmt::format("#include <ATen/ATen.h>\n{} run({});\n", ReturnType(problem), Parameters(problem));
  return PythonComments(heading) + fmt::format(
                                       R"(import torch
from torch.utils.cpp_extension import load_inline

KERNEL = {0}

OPERATOR = {1}

_built = load_inline(
    name={2},
    cpp_sources=[{3}],
    {4}functions=["run"],
    extra_cflags=["-O3", "-std=c++20"{5}],
)


class ModelNew(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
{6}
    def forward(self{7}):
        return _built.run({8})
)",
                                       PythonText(kernel.text), PythonText(operator_text),
                                       PythonString(ModuleName(problem.problem->id)),
                                       gpu ? PythonText(declaration) : "KERNEL, OPERATOR", cuda_part,
                                       gpu ? "" : ", \"-march=native\", \"-fopenmp\"", members, parameters,
                                       names);
}

}  // namespace kevin
