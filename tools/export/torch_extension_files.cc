#include <fmt/format.h>

#include "tools/export/quote.h"
#include "tools/export/torch_extension.h"

namespace kevin {
namespace {

// A Python expression for values like those the problem draws.
std::string Drawn(const ConcreteTensor& t) {
  const TensorSpec& spec = t.spec;
  const std::string shape = t.shape.empty() ? "()" : fmt::format("({},)", fmt::join(t.shape, ", "));
  if (spec.stored) {
    return fmt::format(
        "torch.frombuffer(bytearray.fromhex(\"{:02x}\"), dtype=torch.{}).reshape({}).to(device)",
        fmt::join(std::vector<uint8_t>(spec.stored->begin(), spec.stored->end()), ""), DTypeName(spec.dtype),
        shape);
  }
  std::string text;
  switch (spec.distribution) {
    case Distribution::kUniform01:
      text = fmt::format("torch.rand({}, device=device)", shape);
      break;
    case Distribution::kPositive:
      text = fmt::format("(torch.rand({}, device=device) + 0.1)", shape);
      break;
    case Distribution::kUniform:
      text = fmt::format("(torch.rand({}, device=device) * 2 - 1)", shape);
      break;
    case Distribution::kSigns:
      text = fmt::format("torch.randn({}, device=device).sign()", shape);
      break;
    default:
      text = fmt::format("torch.randn({}, device=device)", shape);
  }
  text = fmt::format("({} * {:.9g} + {:.9g})", text, spec.scale, spec.offset);
  if (spec.structure == Structure::kUpper) text += ".triu()";
  if (spec.structure == Structure::kLower) text += ".tril()";
  if (spec.structure == Structure::kSymmetric) text = fmt::format("(lambda m: (m + m.T) / 2)({})", text);
  if (spec.dtype == DType::kBool) return "(" + text + " > 0)";
  if (spec.dtype == DType::kI64) return text + ".floor().long()";
  if (spec.dtype == DType::kI32) return text + ".floor().int()";
  if (spec.dtype == DType::kF16) return text + ".half()";
  if (spec.dtype == DType::kBF16) return text + ".bfloat16()";
  return text;
}

}  // namespace

std::string SetupPy(const std::string& module, bool gpu) {
  const std::string kind = gpu ? "CUDAExtension" : "CppExtension";
  const std::string flags =
      gpu ? R"({"cxx": ["-O2"], "nvcc": ["-O3", "-std=c++20", "--expt-relaxed-constexpr"]})"
          : R"({"cxx": ["-O3", "-std=c++20", "-march=native", "-fopenmp"]})";
  return fmt::format(
      "from setuptools import setup\nfrom torch.utils.cpp_extension import BuildExtension, {0}\n\nsetup(\n   "
      " "
      "name=\"{1}\",\n    version=\"1.0\",\n    package_dir={{\"\": \"src\"}},\n    packages=[\"{1}\"],\n    "
      "ext_modules=[\n        {0}(\n       "
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
      "{}\nimport glob\nimport os\n\nimport torch\n\nfor _library in "
      "glob.glob(os.path.join(os.path.dirname(__file__), \"_C*.so\")):\n    "
      "torch.ops.load_library(_library)\n\n"
      "run = torch.ops.{}.run\n",
      PythonString(fmt::format("{} ({}) at size {}: run({}).", problem.problem->id, problem.problem->name,
                               problem.size, names)),
      module);
}

std::string TestPy(const SizedProblem& problem, const std::string& module, bool gpu) {
  std::string inputs, names;
  size_t plain = 0;
  for (const ConcreteTensor& t : problem.inputs) {
    inputs += fmt::format("    {},  # {}\n", Drawn(t), t.spec.name);
    if (!t.spec.is_param) ++plain;
    if (t.spec.is_param) names += PythonString(t.spec.name) + ", ";
  }
  const std::string call =
      problem.problem->has_param_dict
          ? fmt::format("forward(*values[:{0}], dict(zip([{1}], values[{0}:])))", plain, names)
          : "forward(*values)";
  return fmt::format(R"("""Compares the operator with its reference in PyTorch, and times both."""
import time

import torch

import {0}

REFERENCE = {1}
device = "{2}"
torch.manual_seed(0)
inputs = [
{3}]
forward = torch.jit.CompilationUnit(REFERENCE).forward


def reference(values):
    return {4}


def outputs(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def error(found, truth):
    return (found.double() - truth.double()).abs().max().item()


expected, found = outputs(reference(inputs)), outputs({0}.run(*inputs))
truth = outputs(reference([x.double() if x.is_floating_point() else x for x in inputs]))
for e, f, t in zip(expected, found, truth):
    print("largest error: kernel", error(f, t), "PyTorch", error(e, t))


def seconds(call):
    call()
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    for _ in range(50):
        call()
    synchronize()
    return (time.perf_counter() - start) / 50


eager, kernel = seconds(lambda: reference(inputs)), seconds(lambda: {0}.run(*inputs))
print(f"PyTorch {{eager * 1e6:.1f}} us, kernel {{kernel * 1e6:.1f}} us: {{eager / kernel:.2f}}x, in a plain loop")
)",
                     module, PythonText(problem.problem->reference), gpu ? "cuda" : "cpu", inputs, call);
}

std::string Readme(const SizedProblem& problem, const std::string& module,
                   const std::vector<std::string>& heading) {
  return fmt::format(
      "# {0}\n\n{1}\nThe operator is made for these shapes alone and checks them.\n\n    pip install "
      "setuptools wheel ninja\n    pip install --no-build-isolation .    # against the PyTorch that is "
      "installed\n    "
      "python test.py\n\n    import "
      "{0}\n    out "
      "= {0}.run({2})\n\nPlain `pip install .` fetches a PyTorch to build against; it must be the version "
      "that runs it.\n",
      module, MarkdownLines(heading),
      problem.inputs[0].spec.name + (problem.inputs.size() > 1 ? ", ..." : ""));
}

}  // namespace kevin
