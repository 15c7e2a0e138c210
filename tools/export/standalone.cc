#include "tools/export/standalone.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "tools/export/launch_code.h"
#include "tools/export/plain_reference.h"
#include "tools/export/standalone_checker.h"
#include "tools/export/standalone_texts.h"

namespace kevin {
namespace {

std::string FileComment(std::string text) {
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

std::string FigureLines(const SizedProblem& problem, const RecordedTimes& recorded, bool can_check) {
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

std::string FileHeading(const SizedProblem& problem, const RecordedTimes& recorded, const Standalone& file) {
  return FileComment(fmt::format("Problem:  {} ({}), size {}", problem.problem->id, problem.problem->name,
                                 problem.size)) +
         FileComment("Episode:  " + recorded.episode) + FileComment("Recorded: " + RecordedText(recorded)) +
         FileComment("Build and run: " + file.command) +
         (file.warning.empty() ? "" : FileComment("It cannot check the answers: " + file.warning)) + "\n";
}

}  // namespace

Standalone WriteStandalone(const SizedProblem& problem, const std::string& kind, const std::string& source,
                           const RecordedTimes& recorded, const std::string& file_name) {
  const bool gpu = kind == "cuda";
  if (!gpu && kind != "cpp") {
    throw Error(ExitCode::kBadRequest, fmt::format("a kernel of kind {} cannot stand alone", kind),
                "without --as the source is exported as it is");
  }
  if (HasParamBlock(*problem.problem)) {
    throw Error(ExitCode::kBadRequest,
                problem.problem->id + ": a kernel that takes its parameters as one block cannot stand alone",
                "without --as the source is exported as it is");
  }
  if (std::any_of(problem.inputs.begin(), problem.inputs.end(),
                  [](const ConcreteTensor& input) { return input.spec.stored != nullptr; })) {
    throw Error(ExitCode::kBadRequest,
                problem.problem->id + ": a kernel with stored inputs cannot stand alone",
                "use --as torch-extension, or export the source as it is, without --as");
  }
  const PlainReference reference = WritePlainReference(problem);
  Standalone file;
  file.warning = reference.why_not;
  const std::string program = file_name.substr(0, file_name.find_last_of('.'));
  file.command =
      gpu ? fmt::format("nvcc -O3 -std=c++20 -arch=native --expt-relaxed-constexpr -o {0} {1} && ./{0}",
                        program, file_name)
          : fmt::format("g++ -O3 -std=c++20 -march=native -fopenmp -o {0} {1} && ./{0}", program, file_name);
  std::string text = FileHeading(problem, recorded, file);
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
  const StandaloneChecker writer(problem, reference, gpu);
  text += writer.Constants() + kStandaloneCommon;
  text += gpu ? kStandaloneCuda : std::string(kStandaloneCpu) + kStandaloneCpuReport;
  const bool can_check = reference.why_not.empty();
  if (can_check) {
    text += reference.code + writer.Steps("", reference.steps);
    if (reference.has_scale) text += writer.Steps("Scale", reference.scale_steps);
  }
  text += writer.Buffers(workspaces) + Poison(problem, gpu);
  text += can_check ? writer.Check() : "static Verdict Check() { return {}; }\n";
  text += gpu ? kStandaloneCudaMachine : CpuRun(problem) + kStandaloneCpuMachine;
  file.text = text + FigureLines(problem, recorded, can_check) + "}  // namespace\n" + kStandaloneMain;
  return file;
}

}  // namespace kevin
