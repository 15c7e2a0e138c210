#include "env/cpu/diagnosis_build.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "env/diagnosis/hot_loop.h"
#include "env/diagnosis/stages.h"
#include "env/diagnosis/vector_report.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostReport = size_t{1} << 20, kMostDisassembly = size_t{16} << 20;
constexpr double kObjdumpTimeout_s = 3;

std::string FirstBytes(const fs::path& path, size_t limit) {
  std::ifstream in(path, std::ios::binary);
  std::string text(limit, '\0');
  in.read(text.data(), static_cast<std::streamsize>(limit));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

// What the build of a verdict lacks: clang's report goes to stderr.
CompileVariant VariantFor(const Compiler& compiler) {
  CompileVariant variant;
  if (IsClang(compiler)) variant.flags = VectorReportFlags(true, kVectorReportName);
  return variant;
}

// Whether it compiled; the report of the compiler goes to *report.
bool Compiles(const Ran& ran, const fs::path& work, bool is_clang, std::string* report) {
  if (ran.timed_out || ran.status != 0) return false;
  *report = is_clang ? ran.output : FirstBytes(work / kVectorReportName, kMostReport);
  return fs::is_regular_file(fs::symlink_status(work / kLibraryFileName));
}

// Beside the compiler, else of the system.
fs::path FindObjdump(const Compiler& compiler) {
  for (const fs::path& path : {compiler.path.parent_path() / "objdump", fs::path("/usr/bin/objdump")}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

}  // namespace

DiagnosisBuild BuildForDiagnosis(const Compiler& compiler, const SizedProblem& problem,
                                 const std::string& source, const CompileOptions& options,
                                 const fs::path& work) {
  DiagnosisBuild build;
  const bool is_clang = IsClang(compiler);
  const MarkedSource marked = MarkStages(source);
  if (!marked.names.empty()) {
    CompileVariant variant = VariantFor(compiler);
    variant.above = StageTimerAbove();
    variant.below = StageTimerBelow(LaunchSignature(*problem.problem));
    const Ran ran = CompileIn(work, compiler, problem, marked.text, options, variant);
    if (ran.timed_out) return build;
    if (Compiles(ran, work, is_clang, &build.vector_report)) {
      build.library = work / kLibraryFileName;
      build.stages = marked.names;
      return build;
    }
    build.stage_problem = "with calls of a timer in their places the kernel does not compile";
  }
  if (is_clang) {
    if (Compiles(CompileIn(work, compiler, problem, source, options, VariantFor(compiler)), work, is_clang,
                 &build.vector_report))
      build.library = work / kLibraryFileName;
    return build;
  }
  const Compiled judged = CompileCpp(compiler, problem, source, options);  // from the cache
  if (judged.library.empty()) return build;
  // A copy: objdump may write in `work`.
  fs::copy_file(judged.library, work / kLibraryFileName, fs::copy_options::overwrite_existing);
  build.vector_report = FirstBytes(judged.library.parent_path() / kVectorReportName, kMostReport);
  build.library = work / kLibraryFileName;
  return build;
}

std::string DisassembledLibrary(const Compiler& compiler, const CompileOptions& options,
                                const fs::path& work) {
  const fs::path objdump = FindObjdump(compiler);
  if (objdump.empty()) return "";
  SpawnOptions spawn = ToolProcess(compiler, options, work);
  spawn.argv.push_back(objdump.string());
  spawn.argv.insert(spawn.argv.end(), DisassemblyArguments().begin(), DisassemblyArguments().end());
  spawn.argv.emplace_back(kLibraryFileName);
  Ran ran = RunToEnd(std::move(spawn), kObjdumpTimeout_s, kMostDisassembly, options.stop);
  return ran.timed_out || ran.status != 0 ? "" : std::move(ran.output);
}

}  // namespace kevin
