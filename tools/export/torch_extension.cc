#include "tools/export/torch_extension.h"

#include <fmt/format.h>

#include "env/error.h"
#include "tools/export/launch_code.h"

namespace kevin {
namespace {

std::string ModuleName(const std::string& problem) {
  std::string name = "kevin_";
  for (const char c : problem) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

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

std::string Shape(const std::vector<int64_t>& shape) { return fmt::format("{{{}}}", fmt::join(shape, ", ")); }

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

// The host side: checks, outputs, workspaces, and one call of `kevin_kernel`.
std::string OperatorText(const SizedProblem& problem, bool gpu, const std::vector<int64_t>& workspaces) {
  std::string body, pointers;
  for (const ConcreteTensor& t : problem.inputs) {
    body += fmt::format("  Expect({}, \"{}\", {}, {});\n", t.spec.name, t.spec.name, TorchType(t.spec.dtype),
                        Shape(t.shape));
    pointers += fmt::format("{}(char*){}.const_data_ptr()", pointers.empty() ? "" : ", ", t.spec.name);
  }
  const std::string first = problem.inputs[0].spec.name;
  if (gpu) body += fmt::format("  const c10::cuda::CUDAGuard guard({}.device());\n", first);
  std::string outputs;
  for (const ConcreteTensor& t : problem.outputs) {
    body += fmt::format("  at::Tensor {} = at::empty({}, {}.options().dtype({}));\n", t.spec.name,
                        Shape(t.shape), first, TorchType(t.spec.dtype));
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

std::string Schema(const SizedProblem& problem) {
  std::string in, out;
  for (const ConcreteTensor& t : problem.inputs) in += (in.empty() ? "Tensor " : ", Tensor ") + t.spec.name;
  for (size_t i = 0; i < problem.outputs.size(); ++i) out += i ? ", Tensor" : "Tensor";
  return fmt::format("run({}) -> {}", in, problem.outputs.size() == 1 ? out : "(" + out + ")");
}

std::string Includes(bool gpu) {
  return gpu ? "#include <ATen/ATen.h>\n#include <c10/cuda/CUDAGuard.h>\n#include <c10/cuda/CUDAStream.h>\n"
             : "#include <ATen/ATen.h>\n";
}

std::string KernelDeclaration(bool gpu) {
  return gpu ? "const char* kevin_kernel(char* const* buffers, cudaStream_t stream);\n\n"
             : "void kevin_kernel(char* const* buffers);\n\n";
}

std::string Binding(const SizedProblem& problem, const std::string& module, bool gpu,
                    const std::vector<int64_t>& workspaces) {
  return Includes(gpu) + "#include <torch/library.h>\n\n" + KernelDeclaration(gpu) + "namespace {\n\n" +
         OperatorText(problem, gpu, workspaces) +
         fmt::format(
             "\n}}  // namespace\n\nTORCH_LIBRARY({}, m) {{ m.def(\"{}\"); }}\nTORCH_LIBRARY_IMPL({}, {}, m) "
             "{{ "
             "m.impl(\"run\", &run); }}\n",
             module, Schema(problem), module, gpu ? "CUDA" : "CPU");
}

struct Kernel {
  std::string text;
  std::vector<int64_t> workspaces;
};

// The kernel and `kevin_kernel`, which launches it.
Kernel KernelFile(const SizedProblem& problem, const std::string& kind, const std::string& source) {
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
    throw Error(ExitCode::kBadRequest, fmt::format("a kernel of kind {} cannot be a PyTorch operator", kind),
                "without --as the source is exported as it is");
  }
  std::string text = "#include <cmath>\n#include <cstdint>\n#include <cstring>\n\n", arguments;
  for (const auto& [name, value] : problem.symbols)
    text += fmt::format("constexpr long {} = {};\n", name, value);
  size_t at = 0;
  for (const ConcreteTensor& t : problem.inputs)
    arguments += fmt::format("{}(const {}*)buffers[{}]", at ? ", " : "", DTypeCpp(t.spec.dtype), at), ++at;
  for (const ConcreteTensor& t : problem.outputs)
    arguments += fmt::format("{}({}*)buffers[{}]", at ? ", " : "", DTypeCpp(t.spec.dtype), at), ++at;
  return {text + source + "\nvoid kevin_kernel(char* const* buffers) { launch(" + arguments + "); }\n", {}};
}

std::string SetupPy(const std::string& module, bool gpu) {
  const std::string kind = gpu ? "CUDAExtension" : "CppExtension";
  const std::string flags =
      gpu ? R"({"cxx": ["-O2"], "nvcc": ["-O3", "-std=c++20", "--expt-relaxed-constexpr"]})"
          : R"({"cxx": ["-O3", "-std=c++20", "-march=native", "-fopenmp"]})";
  return fmt::format(
      "from setuptools import setup\nfrom torch.utils.cpp_extension import BuildExtension, {0}\n\nsetup(\n   "
      " "
      "name=\"{1}\",\n    version=\"1.0\",\n    packages=[\"{1}\"],\n    ext_modules=[\n        {0}(\n       "
      "     "
      "\"{1}._C\",\n            [\"csrc/binding.cpp\", \"csrc/kernel.{2}\"],\n            "
      "extra_compile_args={3},{4}\n"
      "        )\n    ],\n    cmdclass={{\"build_ext\": BuildExtension}},\n)\n",
      kind, module, gpu ? "cu" : "cpp", flags, gpu ? "" : "\n            extra_link_args=[\"-fopenmp\"],");
}

std::string InitPy(const SizedProblem& problem, const std::string& module) {
  std::string names;
  for (const ConcreteTensor& t : problem.inputs) names += (names.empty() ? "" : ", ") + t.spec.name;
  return fmt::format(
      "\"\"\"{} ({}) at size {}: run({}).\"\"\"\nimport glob\nimport os\n\nimport torch\n\nfor _library in "
      "glob.glob(os.path.join(os.path.dirname(__file__), \"_C*.so\")):\n    "
      "torch.ops.load_library(_library)\n\n"
      "run = torch.ops.{}.run\n",
      problem.problem->id, problem.problem->name, problem.size, names, module);
}

std::string TestPy(const SizedProblem& problem, const std::string& module, bool gpu) {
  std::string inputs;
  for (const ConcreteTensor& t : problem.inputs)
    inputs += fmt::format("    torch.randn({}, device=device) * {:.9g} + {:.9g},  # {}\n",
                          t.shape.empty() ? "()" : fmt::format("({},)", fmt::join(t.shape, ", ")),
                          t.spec.scale, t.spec.offset, t.spec.name);
  return fmt::format(R"("""Compares the operator with its reference in PyTorch, and times both."""
import time

import torch

import {0}

REFERENCE = r'''{1}'''
device = "{2}"
inputs = [
{3}]
forward = torch.jit.CompilationUnit(REFERENCE).forward
expected, found = forward(*inputs), {0}.run(*inputs)
truth = forward(*[x.double() for x in inputs])
print("largest error: kernel", (found - truth).abs().max().item(), "PyTorch", (expected - truth).abs().max().item())


def seconds(call):
    call()
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    for _ in range(50):
        call()
    synchronize()
    return (time.perf_counter() - start) / 50


eager, kernel = seconds(lambda: forward(*inputs)), seconds(lambda: {0}.run(*inputs))
print(f"PyTorch {{eager * 1e6:.1f}} us, kernel {{kernel * 1e6:.1f}} us: {{eager / kernel:.2f}}x, in a plain loop")
)",
                     module, problem.problem->reference, gpu ? "cuda" : "cpu", inputs);
}

std::string Readme(const SizedProblem& problem, const std::string& module, const std::string& heading) {
  return fmt::format(
      "# {0}\n\n{1}\nThe operator is made for these shapes alone and checks them.\n\n    pip install "
      "--no-build-isolation .    # against the PyTorch that is installed\n    python test.py\n\n    import "
      "{0}\n    out "
      "= {0}.run({2})\n\nPlain `pip install .` fetches a PyTorch to build against; it must be the version "
      "that runs it.\n",
      module, heading, problem.inputs[0].spec.name + (problem.inputs.size() > 1 ? ", ..." : ""));
}

}  // namespace

TorchExtension WriteTorchExtension(const SizedProblem& problem, const std::string& kind,
                                   const std::string& source, const std::string& heading) {
  const bool gpu = kind == "cuda";
  const Kernel kernel = KernelFile(problem, kind, source);
  TorchExtension extension;
  extension.module = ModuleName(problem.problem->id);
  const std::string& module = extension.module;
  extension.files["setup.py"] = SetupPy(module, gpu);
  extension.files["pyproject.toml"] =
      "[build-system]\nrequires = [\"setuptools\", \"wheel\", \"ninja\", \"torch\"]\nbuild-backend = "
      "\"setuptools.build_meta\"\n";
  extension.files[module + "/__init__.py"] = InitPy(problem, module);
  extension.files["csrc/binding.cpp"] = Binding(problem, module, gpu, kernel.workspaces);
  extension.files[gpu ? "csrc/kernel.cu" : "csrc/kernel.cpp"] = heading + kernel.text;
  extension.files["test.py"] = TestPy(problem, module, gpu);
  std::string facts = heading;
  for (size_t at; (at = facts.find("// ")) != std::string::npos;) facts.replace(at, 3, "    ");
  extension.files["README.md"] = Readme(problem, module, facts);
  return extension;
}

std::string WriteModelNew(const SizedProblem& problem, const std::string& kind, const std::string& source,
                          const std::string& heading) {
  const bool gpu = kind == "cuda";
  const Kernel kernel = KernelFile(problem, kind, source);
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
  std::string comment = heading;
  for (size_t at; (at = comment.find("// ")) != std::string::npos;) comment.replace(at, 3, "# ");
  const std::string operator_text =
      Includes(gpu) + "\n" + KernelDeclaration(gpu) + OperatorText(problem, gpu, kernel.workspaces);
  const std::string declaration =
      fmt::format("#include <ATen/ATen.h>\n{} run({});\n", ReturnType(problem), Parameters(problem));
  return comment +
         fmt::format(
             R"(import torch
from torch.utils.cpp_extension import load_inline

KERNEL = r'''{0}'''

OPERATOR = r'''{1}'''

_built = load_inline(
    name="{2}",
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
             kernel.text, operator_text, ModuleName(problem.problem->id),
             gpu ? "r'''" + declaration + "'''" : "KERNEL, OPERATOR",
             gpu ? "cuda_sources=[KERNEL, OPERATOR],\n    extra_cuda_cflags=[\"-O3\", \"-std=c++20\", "
                   "\"--expt-relaxed-constexpr\"],\n    "
                 : "",
             gpu ? "" : ", \"-march=native\", \"-fopenmp\"", members, parameters, names);
}

}  // namespace kevin
