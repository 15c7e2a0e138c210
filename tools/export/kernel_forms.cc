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
#include "tools/export/torch_extension.h"

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
  WriteText(request, "cu", HeadingText(request.heading) + launch.text,
            "compile it: nvcc -O3 -std=c++20 -arch=native --expt-relaxed-constexpr -c {}\nrun it: call "
            "kevin_launch::SetUp() once, then kevin_launch::Run(buffers, stream); buffers: " +
                BufferNames(problem, launch) + "\n");
}

void WriteExtensionFolder(const KernelExport& request, const SizedProblem& problem, const TurnRecord& turn) {
  const TorchExtension extension =
      WriteTorchExtension(problem, turn.evaluation.kind, turn.evaluation.source, request.heading);
  const fs::path folder = request.output.empty() ? extension.module : request.output;
  std::error_code error;
  if (fs::exists(folder, error) && !request.force) {
    throw Error(ExitCode::kBadRequest, folder.string() + ": the folder exists and was left as it is",
                "give another name with -o, or --force to overwrite its files");
  }
  for (const auto& [name, text] : extension.files) {
    fs::create_directories((folder / name).parent_path(), error);
    WriteFile((folder / name).string(), text, request.force);
  }
  PrintFormat(
      stderr,
      "written to {0}\nbuild it: pip install --no-build-isolation {1}\nthen: python {2}, or import {3}\n",
      folder.string(), ShellWord(folder.string()), ShellWord((folder / "test.py").string()),
      extension.module);
}

// The problem in the precision of the episode. Nothing where the database has no text of it.
std::optional<Problem> ProblemOf(Store& store, const EpisodeRecord& episode) {
  const auto record = store.FindProblem(episode.problem_hash);
  if (!record || record->text.empty()) return std::nullopt;
  Problem problem = ParseProblem(record->text, episode.problem + ".toml");
  return InPrecision(std::move(problem), PrecisionNamed(episode.workload.precision));
}

SizedProblem AtSizeOf(const Problem& problem, const EpisodeRecord& episode, const TurnRecord& turn) {
  const std::string& size =
      turn.evaluation.workload.size.empty() ? episode.workload.size : turn.evaluation.workload.size;
  SizedProblem sized = AtFirstShape(problem, size);
  if (sized.size != size)
    PrintFormat(stderr, "kevin: size {} has several shapes; this file is for {}\n", size,
                ShapeName(sized.size, problem.sizes.at(sized.size)));
  return sized;
}

void WriteSource(const KernelExport& request, Store& store, const EpisodeRecord& episode,
                 const TurnRecord& turn) {
  const EvaluationRecord& e = turn.evaluation;
  if (e.kind != "cpp")
    return WriteText(request, FileName(FileEnding(e.kind)), HeadingText(request.heading) + e.source, "");
  std::optional<Problem> problem;
  try {
    problem = ProblemOf(store, episode);
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
  const std::optional<Problem> problem = ProblemOf(store, episode);
  if (!problem) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: the database has no text of this problem", episode.problem),
                "export the source as it is, without --as");
  }
  if (PrecisionOf(*problem) != Precision::kFp32) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("--as {} writes kernels for float32, and this one is for {}", request.form,
                            episode.workload.precision),
                "export the source as it is, without --as");
  }
  const SizedProblem sized = AtSizeOf(*problem, episode, turn);
  if (request.form == "torch-extension") {
    WriteExtensionFolder(request, sized, turn);
  } else {
    WriteCuda(request, sized, turn);
  }
}

}  // namespace kevin
