#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/files.h"
#include "tools/export/commands.h"
#include "tools/export/standalone.h"
#include "tools/export/torch_extension.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// The winner's confirmed speed-up, else the turn's own.
RecordedTimes RecordedOf(const EpisodeRecord& episode, const TurnRecord& turn) {
  const EvaluationRecord& e = turn.evaluation;
  RecordedTimes recorded;
  recorded.episode = fmt::format("{}, turn {}, policy {}", episode.id, turn.turn, episode.policy);
  recorded.device = e.device.empty() ? episode.device : e.device;
  recorded.candidate_us = e.candidate_us, recorded.reference_us = e.reference_us;
  if (e.speedup)
    recorded.speedup = e.speedup->value, recorded.speedup_low = e.speedup->low,
    recorded.speedup_high = e.speedup->high;
  if (episode.best_turn == turn.turn && episode.best_speedup) {
    recorded.speedup = episode.best_speedup;
    recorded.speedup_low = episode.best_speedup_low, recorded.speedup_high = episode.best_speedup_high;
  }
  return recorded;
}

void WriteStandaloneFile(const ExportAsRequest& request, const SizedProblem& problem,
                         const EpisodeRecord& episode, const TurnRecord& turn) {
  const std::string kind = turn.evaluation.kind;
  if ((request.as == "cu") != (kind == "cuda")) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("this kernel is of kind {}, so --as {} does not fit", kind, request.as),
                kind == "cuda"  ? "use --as cu"
                : kind == "cpp" ? "use --as cpp"
                                : "export it as it is, without --as");
  }
  const std::string path = request.output.empty() ? request.by_default + "." + request.as : request.output;
  const std::string name = path == "-" ? "kernel." + request.as : fs::path(path).filename().string();
  const Standalone file =
      WriteStandalone(problem, kind, turn.evaluation.source, RecordedOf(episode, turn), name);
  if (path == "-") {
    WriteAll(STDOUT_FILENO, file.text, "standard output");
    return;
  }
  WriteFile(path, file.text, request.force);
  fmt::print(stderr, "written to {}\nbuild and run: {}\n", path, file.command);
  if (!file.warning.empty())
    fmt::print(stderr, "it times the kernel but cannot check it: {}\n", file.warning);
}

void WriteExtensionFolder(const ExportAsRequest& request, const SizedProblem& problem,
                          const TurnRecord& turn) {
  const TorchExtension extension =
      WriteTorchExtension(problem, turn.evaluation.kind, turn.evaluation.source, request.heading);
  const fs::path folder = request.output.empty() ? extension.module : request.output;
  std::error_code error;
  if (fs::exists(folder, error) && !request.force) {
    throw Error(ExitCode::kBadRequest, folder.string() + ": exists and was left as it is",
                "give another name with -o, or --force to overwrite its files");
  }
  for (const auto& [name, text] : extension.files) {
    fs::create_directories((folder / name).parent_path(), error);
    WriteFile((folder / name).string(), text, request.force);
  }
  fmt::print(stderr,
             "written to {0}\nbuild it: pip install --no-build-isolation {0}\nthen: python {0}/test.py, or "
             "import {1}\n",
             folder.string(), extension.module);
}

}  // namespace

void ExportAs(const ExportAsRequest& request, Store& store, const EpisodeRecord& episode,
              const TurnRecord& turn) {
  const auto record = store.FindProblem(episode.problem_hash);
  if (!record) throw Error(ExitCode::kBadRequest, "the problem's text is not in the database", "");
  const Problem problem = ParseProblem(record->text, episode.problem + ".toml");
  if (episode.workload.precision != PrecisionName(PrecisionOf(problem))) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("--as {} writes kernels for float32, and this one is for {}", request.as,
                            episode.workload.precision),
                "export it without --as");
  }
  const std::string& size =
      turn.evaluation.workload.size.empty() ? episode.workload.size : turn.evaluation.workload.size;
  const SizedProblem sized = AtFirstShape(problem, size);
  if (sized.size != size)
    fmt::print(stderr, "kevin: size {} has several shapes; this is the kernel for {}\n", size,
               ShapeName(sized.size, problem.sizes.at(sized.size)));
  if (request.as == "torch-extension") {
    WriteExtensionFolder(request, sized, turn);
  } else {
    WriteStandaloneFile(request, sized, episode, turn);
  }
}

}  // namespace kevin
