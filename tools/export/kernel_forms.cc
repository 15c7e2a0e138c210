#include "tools/export/kernel_forms.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/machine.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "env/process/files.h"
#include "tools/export/launch_code.h"
#include "tools/export/quote.h"
#include "tools/export/torch_package.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// "x, out, workspace 0 (400 bytes)": what kevin_launch::Run takes, in its order.
std::string BufferNames(const SizedProblem& problem, const LaunchCode& launch) {
  std::string names;
  for (const TensorSpec& tensor : LaunchTensors(*problem.problem))
    names += (names.empty() ? "" : ", ") + tensor.name;
  for (size_t i = 0; i < launch.workspace_bytes.size(); ++i)
    names += fmt::format(", workspace {} ({} bytes)", i, launch.workspace_bytes[i]);
  return names;
}

// Writes to a file and says so, or to standard output.
void WriteText(const KernelExport& request, const std::string& ending, std::string text,
               const std::string& how_to_use) {
  if (text.empty() || text.back() != '\n') text += '\n';
  if (request.output == "-") {
    // A file or another program gets the bytes, a terminal their printable form.
    WriteAll(STDOUT_FILENO, isatty(STDOUT_FILENO) == 1 ? Printable(text) : text, "standard output");
    return;
  }
  const std::string path = request.output.empty() ? request.by_default + "." + ending : request.output;
  WriteFile(path, text, request.force);
  PrintFormat(stderr, "written to {}\n", path);
  if (!how_to_use.empty()) Print(stderr, fmt::format(fmt::runtime(how_to_use), ShellWord(path)));
}

void WriteCuda(const KernelExport& request, const SizedProblem& problem, const TurnRecord& turn) {
  const LaunchCode launch = WriteLaunchCode(problem, turn.evaluation.kind, turn.evaluation.source);
  const std::string special = ArchitectureFlag(turn.evaluation.source),
                    architecture = special.empty() ? "-arch=native" : special;
  WriteText(
      request, "cu", HeadingText(request.heading) + launch.text,
      "compile it: nvcc -O3 -std=c++20 " + architecture +
          " --expt-relaxed-constexpr -c {}\nrun it: call "
          "kevin_launch::SetUp() once for each device, then kevin_launch::Run(buffers, stream); buffers: " +
          BufferNames(problem, launch) + "\n");
}

void WritePackage(const KernelExport& request, const Problem& problem, const std::string& size,
                  const TurnRecord& turn) {
  const fs::path output = request.output;
  if (output == "-") {
    throw Error(ExitCode::kBadRequest, "--as torch-package writes several files, and -o - is one",
                "-o NAME.py or -o FOLDER");
  }
  PackageRequest wanted{&problem,
                        size,
                        turn.evaluation.kind,
                        turn.evaluation.source,
                        "",
                        request.heading,
                        request.inference_only};
  if (output.extension() == ".py") wanted.name = output.stem().string();
  const TorchPackage package = WriteTorchPackage(wanted);
  Print(stderr, WritePackageFiles(package, output.empty() ? fs::path(package.name) : output,
                                  IsForGpu(turn.evaluation.kind), request.force));
}

std::string SizeOf(const EpisodeRecord& episode, const TurnRecord& turn) {
  const std::string& size = turn.evaluation.workload.size;
  return size.empty() ? episode.workload.size : size;
}

SizedProblem AtSizeOf(const Problem& problem, const EpisodeRecord& episode, const TurnRecord& turn) {
  const std::string size = SizeOf(episode, turn);
  SizedProblem sized = AtFirstShape(problem, size);
  if (sized.size != size)
    PrintFormat(stderr, "kevin: size {} has several shapes; this file is for {}\n", size,
                ShapeName(sized.size, problem.sizes.at(sized.size)));
  return sized;
}

// The constants in scope of `launch` are set unless they are set already, as they are where Kevin judges the file.
void WritePython(const KernelExport& request, Store& store, const EpisodeRecord& episode,
                 const TurnRecord& turn) {
  const EvaluationRecord& e = turn.evaluation;
  std::string constants;
  if (e.kind == "triton") {
    try {
      if (const auto problem = ProblemOfEpisode(store, episode)) {
        for (const auto& [name, value] : AtSizeOf(*problem, episode, turn).symbols)
          constants += fmt::format("globals().setdefault(\"{}\", {})\n", name, value);
      }
    } catch (const Error&) {  // a text that this version cannot read: the file lacks its constants
    }
  }
  if (!constants.empty()) constants += "\n";
  // An import from __future__ must come first; such a text keeps its place there.
  if (e.source.find("from __future__") != std::string::npos) constants.clear();
  WriteText(request, FileName(FileEnding(e.kind)),
            PythonComments(request.heading) + "\n" + constants + e.source, "");
}

void WriteSource(const KernelExport& request, Store& store, const EpisodeRecord& episode,
                 const TurnRecord& turn) {
  const EvaluationRecord& e = turn.evaluation;
  if (IsPython(e.kind)) return WritePython(request, store, episode, turn);
  if (e.kind != "cpp")
    return WriteText(request, FileName(FileEnding(e.kind)), HeadingText(request.heading) + e.source, "");
  std::optional<Problem> problem;
  try {
    problem = ProblemOfEpisode(store, episode);
  } catch (const Error&) {  // a text that this version cannot read
  }
  if (!problem) {
    PrintFormat(stderr, "kevin: the database has no readable text of {}, so the file lacks its constants\n",
                episode.problem);
    return WriteText(request, "cpp", HeadingText(request.heading) + e.source, "");
  }
  WriteText(request, "cpp", StandaloneCpp(AtSizeOf(*problem, episode, turn), request.heading, e.source),
            "compile it: g++ -O3 -std=c++20 -march=native -fopenmp -c {}\n");
}

}  // namespace

std::optional<Problem> ProblemOfEpisode(Store& store, const EpisodeRecord& episode) {
  const auto record = store.FindProblem(episode.problem_hash);
  if (!record || record->text.empty()) return std::nullopt;
  Problem problem = ParseProblem(record->text, episode.problem + ".toml");
  return InPrecision(std::move(problem), PrecisionNamed(episode.workload.precision));
}

std::string HeadingText(const std::vector<std::string>& heading) { return CppComments(heading) + "\n"; }

std::string StandaloneCpp(const SizedProblem& problem, const std::vector<std::string>& heading,
                          const std::string& source) {
  const bool has_bf16 =
      std::any_of(problem.arguments.begin(), problem.arguments.end(),
                  [](const ConcreteTensor& tensor) { return tensor.spec.dtype == DType::kBF16; });
  std::string constants = has_bf16 ? Bf16Cpp() : "";
  for (const auto& [name, value] : problem.symbols)
    constants += fmt::format("constexpr long {} = {};\n", name, value);
  if (constants.empty()) return HeadingText(heading) + source;
  // Kevin includes a candidate from a file that has the constants already.
  return HeadingText(heading) + "#if __INCLUDE_LEVEL__ == 0  // compiled alone\n" + constants + "#endif\n\n" +
         source;
}

void ExportKernel(const KernelExport& request, Store& store, const EpisodeRecord& episode,
                  const TurnRecord& turn) {
  if (request.form.empty()) return WriteSource(request, store, episode, turn);
  const std::optional<Problem> problem = ProblemOfEpisode(store, episode);
  if (!problem) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: the database has no text of this problem", episode.problem),
                "export the source as it is, without --as");
  }
  if (request.form == "torch-package") return WritePackage(request, *problem, SizeOf(episode, turn), turn);
  WriteCuda(request, AtSizeOf(*problem, episode, turn), turn);
}

}  // namespace kevin
