#include "env/cpu/cpu_diagnosis.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "env/cpu/diagnosis_build.h"
#include "env/diagnosis/diagnosis_run.h"
#include "env/diagnosis/hot_loop.h"
#include "env/diagnosis/stages.h"
#include "env/diagnosis/vector_report.h"
#include "env/process/files.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

constexpr double kCompileTimeout_s = 20;  // of wall time: the machine may be busy
constexpr size_t kMostNotes = 3;

int MachineVectorBits() {
  const std::string features = " " + CpuFeatures() + " ";
  if (features.find(" avx512f ") != std::string::npos) return 512;
  return features.find(" avx2 ") != std::string::npos ? 256 : 128;
}

// Of the loop's own lines; the line of its head may stand above the first of them.
void AddNotes(const std::vector<VectorNote>& notes, HotLoop* loop) {
  for (const VectorNote& note : notes) {
    const bool is_inside = note.line + 1 >= loop->first_line && note.line <= loop->last_line;
    const bool says_something = note.vector_bytes > 0 || !note.reason.empty();
    if (is_inside && says_something && loop->notes.size() < kMostNotes) loop->notes.push_back(note);
  }
}

}  // namespace

std::optional<Diagnosis> DiagnoseOnCpu(const SizedProblem& sized, const std::string& source,
                                       const CpuDiagnosisParts& parts) {
  const auto start = std::chrono::steady_clock::now();
  CompileOptions compile = parts.compile;
  compile.limits.compile_timeout_s = std::min(compile.limits.compile_timeout_s, kCompileTimeout_s);
  const WorkFolder temporary(LibraryFolder(compile.cache_directory), "diagnose");
  const std::filesystem::path work = temporary.path() / "work";
  std::filesystem::create_directory(work);
  const DiagnosisBuild build = BuildForDiagnosis(parts.compiler, sized, source, compile, work);
  if (build.library.empty()) return std::nullopt;
  DiagnosisRun run = DiagnosisRunFromJson(parts.run(build.library));
  if (!run.failure.empty()) return std::nullopt;
  Diagnosis& found = run.found;
  found.machine_vector_bits = MachineVectorBits();
  found.stages = ReadStageTimes(run.log, build.stages);
  found.stage_problem = build.stage_problem;
  if (!build.stages.empty() && found.stages.empty())
    found.stage_problem = "no call of `launch` reached the end of its timer";
  const int lines = static_cast<int>(std::count(source.begin(), source.end(), '\n')) + 1;
  found.loop = FindHotLoop(DisassembledLibrary(parts.compiler, compile, work), run.addresses,
                           found.where.samples, kCandidateFileName, lines);
  if (found.loop) AddNotes(ReadVectorReport(build.vector_report, kCandidateFileName, lines), &*found.loop);
  found.seconds = SecondsSince(start);
  return std::move(found);
}

}  // namespace kevin
