#include "tools/export/standalone_checker.h"

#include <fmt/format.h>

#include <algorithm>

namespace kevin {
namespace {

const char* ShapeName(Distribution distribution) {
  switch (distribution) {
    case Distribution::kMixture:
      return "kMixture";
    case Distribution::kNormal:
      return "kNormal";
    case Distribution::kUniform:
      return "kUniform";
    case Distribution::kUniform01:
      return "kUniform01";
    case Distribution::kHeavyTailed:
      return "kHeavyTailed";
    case Distribution::kPositive:
      return "kPositive";
    case Distribution::kSigns:
      return "kSigns";
    case Distribution::kStored:  // WriteStandalone refuses these
      break;
  }
  return "kNormal";
}

const char* JoinName(const std::string& kind) {
  if (kind == "mean") return "kMean";
  if (kind == "max") return "kMax";
  if (kind == "min") return "kMin";
  if (kind == "argmax") return "kArgmax";
  if (kind == "argmin") return "kArgmin";
  return "kSum";
}

bool IsIndex(const SizedProblem& problem) {
  return problem.outputs.size() == 1 && problem.outputs[0].spec.dtype == DType::kI64;
}

}  // namespace

std::string StandaloneChecker::Constants() const {
  return fmt::format("constexpr int kInputs = {};\nconstexpr long kReduction = {};\n", problem_.inputs.size(),
                     problem_.reduction);
}

std::string StandaloneChecker::Steps(const std::string& prefix,
                                     const std::vector<ReferenceStep>& steps) const {
  std::string text, calls, frees;
  for (size_t i = 0; i < steps.size(); ++i) {
    text += fmt::format(
        "struct {0}Step{1} {{\n  template <class T>\n  static HD T At(const Inputs& in, const Buffers<T>& "
        "b, long i, "
        "long r) {{\n    return {0}Term{1}<T>(in, b, i, r);\n  }}\n}};\n",
        prefix, i);
    const ReferenceStep& s = steps[i];
    calls += fmt::format(
        "  b->p[{0}] = (T*)Allocate({1}L * (long)sizeof(T));\n  DoStep<{2}Step{0}, T>(in, *b, {0}, "
        "\"{3}\", {4}, {1}L, "
        "{5}L, {6}L);\n",
        i, s.results, prefix, s.kind, JoinName(s.kind), s.terms, s.inner);
  }
  return text +
         fmt::format(
             "template <class T>\nstatic void Prepare{}(const Inputs& in, Buffers<T>* b) {{\n  (void)in; "
             "(void)b;\n{}}}\n\n",
             prefix, calls);
}

std::string StandaloneChecker::Check() const { return IsIndex(problem_) ? CheckIndices() : CheckRows(); }

std::string StandaloneChecker::Buffers(const std::vector<int64_t>& workspaces) const {
  std::string text = "static char* buffers[64];\nstatic void AllocateBuffers() {\n";
  size_t at = 0;
  for (const auto* tensors : {&problem_.inputs, &problem_.outputs}) {
    for (const ConcreteTensor& t : *tensors)
      text += fmt::format("  buffers[{}] = Allocate({}L);  // {}\n", at++, t.bytes, t.spec.name);
  }
  for (const int64_t bytes : workspaces) text += fmt::format("  buffers[{}] = Allocate({}L);\n", at++, bytes);
  text += "}\nstatic void DrawInputs(unsigned long long seed) {\n";
  for (size_t i = 0; i < problem_.inputs.size(); ++i) text += Fill(i);
  return text + "}\n";
}

std::string StandaloneChecker::Fill(size_t i) const {
  const ConcreteTensor& t = problem_.inputs[i];
  const std::string seed = fmt::format("seed + {}ull", 4 * i * 1000003);
  if (gpu_)
    return fmt::format(
        "  FillInput<<<4096, 256>>>((float*)buffers[{}], {}L, {}, (float){:.9g}, (float){:.9g}, {});\n", i,
        t.elements, ShapeName(t.spec.distribution), t.spec.scale, t.spec.offset, seed);
  return fmt::format(
      "#pragma omp parallel for\n  for (long i = 0; i < {}L; ++i)\n    ((float*)buffers[{}])[i] = "
      "Drawn({}, {}, i) * "
      "(float){:.9g} + (float){:.9g};\n",
      t.elements, i, ShapeName(t.spec.distribution), seed, t.spec.scale, t.spec.offset);
}

std::string StandaloneChecker::ScaleText() const {
  return reference_.has_scale ? "fabs(ScaleResult<double>(in, scales, i))" : "fmax(fabs(t), rms)";
}

// A row is the last dimension, or the whole tensor when that has one element.
std::string StandaloneChecker::CheckRows() const {
  const ConcreteTensor& out = problem_.outputs[0];
  const int64_t last = out.shape.empty() ? 1 : out.shape.back();
  const int64_t row = last == 1 ? out.elements : last;
  const std::string element = fmt::format(
      "      const long i = row * {}L + e;\n      const double t = Result<double>(in, truths, i), r = "
      "Result<float>(in, floats, i), y = answer[i];\n",
      row);
  const std::string scale = ScaleText();
  const std::string loop = gpu_ ? fmt::format("for (long e = threadIdx.x; e < {}L; e += blockDim.x)", row)
                                : fmt::format("for (long e = 0; e < {}L; ++e)", row);
  const std::string total = gpu_ ? "BlockSum" : "";
  std::string body = fmt::format(
      "    double squares = 0, error = 0, float_error = 0, scales_squared = 0;\n    {} {{\n{}      "
      "(void)r; (void)y;\n"
      "      if (IsFinite(t)) squares += t * t;\n    }}\n    const double rms = sqrt({}(squares) / "
      "{}.0);\n    "
      "(void)rms;\n    {} {{\n{}      const double s = {};\n      Report(verdict, OverBound(y, t, r, s), "
      "i);\n"
      "      if (IsFinite(t) && IsFinite(r) && IsFinite(y)) {{\n        error += (y - t) * (y - t);\n      "
      "  "
      "float_error += (r - t) * (r - t);\n        scales_squared += s * s;\n      }}\n    }}\n    error = "
      "sqrt({}(error));\n    const double bound = fmax(4 * sqrt({}(float_error)), "
      "Floor(sqrt({}(scales_squared))));\n",
      loop, element, total, row, loop, element, scale, total, total, total);
  // At its last element, so that a wrong element is named before its row.
  const std::string last_words = fmt::format("Report(verdict, error / bound, row * {0}L + {0}L - 1);\n", row);
  body += gpu_ ? "    if (threadIdx.x == 0 && error > 0) " + last_words : "    if (error > 0) " + last_words;
  return Wrapped("const float* answer", body, out.elements / row);
}

std::string StandaloneChecker::CheckIndices() const {
  const ConcreteTensor &out = problem_.outputs[0], &in = problem_.inputs[0];
  const auto dim = static_cast<size_t>(problem_.problem->extreme_dim.value_or(0));
  int64_t inner = 1;
  for (size_t d = dim + 1; d < in.shape.size(); ++d) inner *= in.shape[d];
  const std::string first = gpu_ ? "threadIdx.x == 0" : "true";
  const std::string body = fmt::format(
      "    if ({}) {{\n      const long base = row / {}L * {}L + row % {}L;\n      const long t = "
      "(long)Result<double>(in, truths, row), y = answer[row];\n      (void)floats;\n      const bool "
      "is_right = y >= 0 && y < "
      "{}L &&\n          (in.p[0][base + y * {}L] == in.p[0][base + t * {}L]);\n      Report(verdict, "
      "is_right ? 0 : "
      "INFINITY, row);\n    }}\n",
      first, inner, in.shape[dim] * inner, inner, in.shape[dim], inner, inner);
  return Wrapped("const long* answer", body, out.elements);
}

std::string StandaloneChecker::Wrapped(const std::string& answer, const std::string& body,
                                       int64_t rows) const {
  const std::string parameters =
      "(Inputs in, Buffers<double> truths, Buffers<float> floats, Buffers<double> scales, " + answer +
      ", Verdict* verdict)";
  const std::string type = answer.substr(0, answer.find(" answer"));
  const std::string output = fmt::format("({})buffers[{}]", type, problem_.inputs.size());
  std::string text = gpu_ ? "__global__ void CheckAll" : "static void CheckAll";
  text += parameters + " {\n  (void)scales;\n";
  text += gpu_ ? fmt::format("  for (long row = blockIdx.x; row < {}L; row += gridDim.x) {{\n", rows)
               : fmt::format("  for (long row = 0; row < {}L; ++row) {{\n", rows);
  text += body + "  }\n}\n";
  text += "static Verdict Check() {\n  Inputs in;\n";
  for (size_t i = 0; i < problem_.inputs.size(); ++i)
    text += fmt::format("  in.p[{0}] = (const float*)buffers[{0}];\n", i);
  text +=
      "  const size_t kept = allocated.size();\n  Buffers<double> truths{}, scales{};\n  Buffers<float> "
      "floats;\n  "
      "Prepare(in, &truths);\n  Prepare(in, &floats);\n";
  if (reference_.has_scale) text += "  PrepareScale(in, &scales);\n";
  if (gpu_) {
    text += fmt::format(
        "  Verdict verdict = {{0, ~0ull, 0}};\n  Verdict* const on_device = (Verdict*)Allocate(sizeof "
        "verdict);\n  "
        "Must(cudaMemcpy(on_device, &verdict, sizeof verdict, cudaMemcpyHostToDevice), \"check\");\n  "
        "CheckAll<<<{}, 256>>>(in, truths, floats, scales, {}, on_device);\n  Must(cudaMemcpy(&verdict, "
        "on_device, "
        "sizeof verdict, cudaMemcpyDeviceToHost), \"check\");\n",
        std::min<int64_t>(rows, 1 << 20), output);
  } else {
    text += "  Verdict verdict = {0, ~0ull, 0};\n  CheckAll(in, truths, floats, scales, " + output +
            ", &verdict);\n";
  }
  text += std::string("  for (; allocated.size() > kept; allocated.pop_back()) ") +
          (gpu_ ? "cudaFree(allocated.back());\n" : "std::free(allocated.back());\n");
  return text + "  return verdict;\n}\n";
}

}  // namespace kevin
