#include "tools/export/standalone.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "tools/export/launch_code.h"
#include "tools/export/plain_reference.h"
#include "tools/export/standalone_texts.h"

namespace kevin {
namespace {

std::string CommentLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  while (!text.empty() && (text.back() == '\\' || text.back() == ' ')) text.pop_back();
  return "// " + text + "\n";
}

std::string RecordedText(const RecordedTimes& r) {
  if (!r.candidate_us || !r.reference_us) return "no time is on record";
  std::string text =
      fmt::format("kernel {:.4g} us, eager PyTorch {:.4g} us", *r.candidate_us, *r.reference_us);
  if (r.speedup)
    text += fmt::format(", {:.3g}x ({:.3g}x to {:.3g}x)", *r.speedup, r.speedup_low.value_or(0),
                        r.speedup_high.value_or(0));
  return text + " on " + r.device;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

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

// The parts that differ from problem to problem. `gpu`: CUDA, else C++.
class Writer {
 public:
  Writer(const SizedProblem& problem, const PlainReference& reference, bool gpu)
      : problem_(problem), reference_(reference), gpu_(gpu) {}

  std::string Constants() const {
    return fmt::format("constexpr int kInputs = {};\nconstexpr long kReduction = {};\n",
                       problem_.inputs.size(), problem_.reduction);
  }

  // One struct a step, and the function that fills their buffers.
  std::string Steps(const std::string& prefix, const std::vector<ReferenceStep>& steps) const {
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

  std::string Check() const { return IsIndex(problem_) ? CheckIndices() : CheckRows(); }

  std::string Buffers(const std::vector<int64_t>& workspaces) const {
    std::string text = "static char* buffers[64];\nstatic void AllocateBuffers() {\n";
    size_t at = 0;
    for (const auto* tensors : {&problem_.inputs, &problem_.outputs}) {
      for (const ConcreteTensor& t : *tensors)
        text += fmt::format("  buffers[{}] = Allocate({}L);  // {}\n", at++, t.bytes, t.spec.name);
    }
    for (const int64_t bytes : workspaces)
      text += fmt::format("  buffers[{}] = Allocate({}L);\n", at++, bytes);
    text += "}\nstatic void DrawInputs(unsigned long long seed) {\n";
    for (size_t i = 0; i < problem_.inputs.size(); ++i) text += Fill(i);
    return text + "}\n";
  }

 private:
  std::string Fill(size_t i) const {
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

  std::string ScaleText() const {
    return reference_.has_scale ? "fabs(ScaleResult<double>(in, scales, i))" : "fmax(fabs(t), rms)";
  }

  // A row is the last dimension, or the whole tensor when that has one element.
  std::string CheckRows() const {
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
    const std::string last_words =
        fmt::format("Report(verdict, error / bound, row * {0}L + {0}L - 1);\n", row);
    body +=
        gpu_ ? "    if (threadIdx.x == 0 && error > 0) " + last_words : "    if (error > 0) " + last_words;
    return Wrapped("const float* answer", body, out.elements / row);
  }

  std::string CheckIndices() const {
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

  std::string Wrapped(const std::string& answer, const std::string& body, int64_t rows) const {
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

  const SizedProblem& problem_;
  const PlainReference& reference_;
  bool gpu_;
};

constexpr char kCpuReport[] = R"(
static void Report(Verdict* verdict, double over, unsigned long long where) {
  if (over > 1 || over != over) {
    verdict->wrong++;
    if (where < verdict->first_wrong) verdict->first_wrong = where;
  }
  if (over > verdict->worst) verdict->worst = over;
}
)";

// RunOnce, Synchronise, OutputPoison and TimeOnce differ; main is the same.
constexpr char kMain[] = R"(
int main(int argc, char**) {  // with any argument it only checks
  AllocateBuffers();
  Begin();
  int right = 0;
  double worst = 0;
  for (unsigned long long seed = 0; kCanCheck && seed < kSeeds; ++seed) {
    DrawInputs(seed + 4 * 7919);
    Poison();
    RunOnce();
    const Verdict verdict = Check();
    right += verdict.wrong == 0;
    if (verdict.worst > worst) worst = verdict.worst;
    if (verdict.wrong != 0) {
      std::printf("wrong: input set %llu has %llu wrong places, the first at %llu\n", seed, verdict.wrong,
                  verdict.first_wrong);
    }
  }
  if (kCanCheck) {
    std::printf("check:    %d of %d input sets right; the largest error is %.2g of what is allowed\n", right, kSeeds,
                worst);
  } else {
    std::printf("check:    none, the reference cannot be written as plain loops\n");
  }
  const int code = !kCanCheck || right == kSeeds ? 0 : 1;
  if (argc > 1) return code;
  std::vector<double> times_us;
  double spent_us = 0;
  for (int i = 0; i < 200 && (i < 20 || spent_us < 2e6); ++i) {
    DrawInputs(i);
    const double us = TimeOnce();
    spent_us += us;
    if (i >= 5) times_us.push_back(us);
  }
  std::sort(times_us.begin(), times_us.end());
  const double median = times_us[times_us.size() / 2];
  std::printf("time:     %.4g us a call, median of %zu on inputs drawn anew, caches flushed (%.4g to %.4g)\n", median,
              times_us.size(), times_us[times_us.size() / 10], times_us[times_us.size() * 9 / 10]);
  if (kBytes > 0) std::printf("rates:    %.4g GB/s, %.4g GFLOP/s by the usual counts\n", kBytes / median / 1e3, kFlops / median / 1e3);
  std::printf("recorded: %s\n", kRecorded);
  if (kRecordedEagerUs > 0) std::printf("speed-up: %.3gx against the recorded eager time\n", kRecordedEagerUs / median);
  return code;
}
)";

constexpr char kCudaMachine[] = R"(
static cudaEvent_t before, after;
static char* flush;
constexpr long kFlushBytes = 256L << 20;
static void Begin() {
  Must(kevin_launch::SetUp(), "setting up");
  Must(cudaEventCreate(&before), "event");
  Must(cudaEventCreate(&after), "event");
  flush = Allocate(kFlushBytes);
}
static void RunOnce() {
  Must(kevin_launch::Run(buffers, nullptr), "launch");
  Must(cudaDeviceSynchronize(), "the kernel");
}
static double TimeOnce() {
  Must(cudaMemsetAsync(flush, 1, kFlushBytes), "flush");
  Must(cudaEventRecord(before), "event");
  Must(kevin_launch::Run(buffers, nullptr), "launch");
  Must(cudaEventRecord(after), "event");
  Must(cudaDeviceSynchronize(), "the kernel");
  float ms = 0;
  Must(cudaEventElapsedTime(&ms, before, after), "event");
  return ms * 1e3;
}
)";

constexpr char kCpuMachine[] = R"(
static std::vector<char> flush(256L << 20, 1);
static void Begin() {}
static double TimeOnce() {
  for (size_t i = 0; i < flush.size(); i += 64) flush[i]++;
  const auto start = std::chrono::steady_clock::now();
  RunOnce();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}
)";

std::string Figures(const SizedProblem& problem, const RecordedTimes& recorded, bool can_check) {
  return fmt::format(
      "constexpr bool kCanCheck = {};\nconstexpr int kSeeds = 4;\nconstexpr double kBytes = {:.17g}, kFlops "
      "= {:.17g}, "
      "kRecordedEagerUs = {:.17g};\nstatic const char kRecorded[] = {};\n",
      can_check, problem.bytes, problem.flops, recorded.reference_us.value_or(0),
      Quoted(RecordedText(recorded)));
}

// Answers left from before must not pass.
std::string Poison(const SizedProblem& problem, bool gpu) {
  std::string text = "static void Poison() {\n";
  for (size_t i = 0; i < problem.outputs.size(); ++i) {
    const size_t at = problem.inputs.size() + i;
    text += gpu ? fmt::format("  Must(cudaMemset(buffers[{}], 0xff, {}L), \"poison\");\n", at,
                              problem.outputs[i].bytes)
                : fmt::format("  std::memset(buffers[{}], 0xff, {}L);\n", at, problem.outputs[i].bytes);
  }
  return text + "}\n";
}

std::string CpuRun(const SizedProblem& problem) {
  std::string arguments;
  size_t at = 0;
  for (const ConcreteTensor& t : problem.inputs)
    arguments += fmt::format("{}(const {}*)buffers[{}]", at ? ", " : "", DTypeCpp(t.spec.dtype), at), ++at;
  for (const ConcreteTensor& t : problem.outputs)
    arguments += fmt::format("{}({}*)buffers[{}]", at ? ", " : "", DTypeCpp(t.spec.dtype), at), ++at;
  return "static void RunOnce() { launch(" + arguments + "); }\n";
}

std::string Heading(const SizedProblem& problem, const RecordedTimes& recorded, const Standalone& file) {
  return CommentLine(fmt::format("Problem:  {} ({}), size {}", problem.problem->id, problem.problem->name,
                                 problem.size)) +
         CommentLine("Episode:  " + recorded.episode) + CommentLine("Recorded: " + RecordedText(recorded)) +
         CommentLine("Build and run: " + file.command) +
         (file.warning.empty() ? "" : CommentLine("It cannot check the answers: " + file.warning)) + "\n";
}

}  // namespace

Standalone WriteStandalone(const SizedProblem& problem, const std::string& kind, const std::string& source,
                           const RecordedTimes& recorded, const std::string& file_name) {
  const bool gpu = kind == "cuda";
  if (!gpu && kind != "cpp") {
    throw Error(ExitCode::kBadRequest, fmt::format("a kernel of kind {} cannot stand alone", kind),
                "without --as the source is exported as it is");
  }
  const PlainReference reference = WritePlainReference(problem);
  Standalone file;
  file.warning = reference.why_not;
  const std::string program = file_name.substr(0, file_name.find_last_of('.'));
  file.command =
      gpu ? fmt::format("nvcc -O3 -std=c++20 -arch=native --expt-relaxed-constexpr -o {0} {1} && ./{0}",
                        program, file_name)
          : fmt::format("g++ -O3 -std=c++20 -march=native -fopenmp -o {0} {1} && ./{0}", program, file_name);
  std::string text = Heading(problem, recorded, file);
  std::vector<int64_t> workspaces;
  std::string headers =
      "#include <algorithm>\n#include <chrono>\n#include <cmath>\n#include <cstdint>\n#include "
      "<cstdio>\n#include <cstdlib>\n#include <cstring>\n#include <vector>\n";
  if (gpu) {
    const LaunchCode launch = WriteLaunchCode(problem, kind, source);
    workspaces = launch.workspace_bytes;
    text += headers + "\n// --- The kernel, and its launches at this size.\n" + launch.text;
  } else {
    text += headers + "\n// --- The kernel.\n";
    for (const auto& [name, value] : problem.symbols)
      text += fmt::format("constexpr long {} = {};\n", name, value);
    text += source + "\n";
  }
  text += "\n// --- What checks and times it.\nnamespace {\n";
  text += gpu ? "#define HD __host__ __device__\n" : "#define HD\n";
  const Writer writer(problem, reference, gpu);
  text += writer.Constants() + kStandaloneCommon;
  text += gpu ? kStandaloneCuda : std::string(kStandaloneCpu) + kCpuReport;
  const bool can_check = reference.why_not.empty();
  if (can_check) {
    text += reference.code + writer.Steps("", reference.steps);
    if (reference.has_scale) text += writer.Steps("Scale", reference.scale_steps);
  }
  text += writer.Buffers(workspaces) + Poison(problem, gpu);
  text += can_check ? writer.Check() : "static Verdict Check() { return {}; }\n";
  text += gpu ? kCudaMachine : CpuRun(problem) + kCpuMachine;
  file.text = text + Figures(problem, recorded, can_check) + "}  // namespace\n" + kMain;
  return file;
}

}  // namespace kevin
