#pragma once
// From the text of a candidate to a shared library. The compiler reads hostile text, so it runs in a sandbox
// with limits of its own. Results and errors are cached by content.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/process/machine.h"
#include "env/process/shared_memory.h"
#include "env/process/spawn.h"

namespace kevin {

struct Compiler {
  std::filesystem::path path;  // g++ or clang++
  std::string version;         // first line of --version
  // What its sandbox shows beside the system's folders, as the driver reports it: files, links and folders,
  // never a home as a whole. Empty for a compiler of the system.
  std::vector<std::string> needs{};
};

// The most that a compiled kernel, or any file on the way to it, may take. A larger one does not compile.
inline constexpr int64_t kMaxLibraryBytes = int64_t{32} << 20;

// $KEVIN_CXX, else g++, else clang++. Throws Error(kMachine) when there is none.
Compiler FindCompiler();

struct CompileOptions {
  std::filesystem::path runner;  // kevin-runner
  std::filesystem::path cache_directory;
  int64_t cache_limit_bytes = int64_t{2} << 30;  // the least recently used libraries go first
  bool namespaces = true;
  Limits limits;
  const std::atomic<bool>* stop = nullptr;  // as EvaluateOptions::stop
  LockMode lock = LockMode::kShared;        // of the CPU, while the compiler runs
  // How many times limits.compile_timeout_s may pass by the clock. The processor time of each process stays limited to one.
  double patience = 1;
};

struct Compiled {
  std::filesystem::path library;  // empty when it failed
  std::string log;                // errors, or warnings, trimmed to limits.max_log_bytes
  bool timed_out =
      false;              // by limits.compile_timeout_s, which counts time and processor time of each process
  bool on_clock = false;  // of these by the clock: a busy machine may have caused it
  bool cached = false;
  double wait_s = 0;                   // for the machine-wide lock
  std::shared_ptr<const Fd> in_use{};  // keeps the library in the cache
};

// The folder of compiled libraries. Made if needed.
std::filesystem::path LibraryFolder(const std::filesystem::path& cache_directory);

// The flags every `cpp` candidate is compiled with.
const std::vector<std::string>& CompileFlags();

bool IsClang(const Compiler& compiler);

// Further flags, which leave the machine code as it is: a line table and, by g++, the report on vectors in the file
// kVectorReportName of an entry of the cache. A diagnosis needs no second compile then (env/cpu/diagnosis_build.h).
std::vector<std::string> ReportFlags(const Compiler& compiler);

// Whether a compiler that has failed reports that one of its processes was killed: by the limit on processor time.
bool WasKilled(const Ran& ran);

// Compiles `source` for the problem at its size: its symbols are constants in scope (in bf16 the type too),
// and `launch` must have the signature of the problem. Messages have the line numbers of `source`. Throws
// Error for broken infrastructure only, a full disk among it.
Compiled CompileCpp(const Compiler& compiler, const SizedProblem& problem, const std::string& source,
                    const CompileOptions& options);

// Calls `compile` with the options, and where it timed out by the clock once more: in exclusive execution, with twice
// the time. So programs beside Kevin decide no outcome.
Compiled CompileConfirmed(CompileOptions options,
                          const std::function<Compiled(const CompileOptions&)>& compile);

// --- Builds that are not judged (env/cpu/diagnosis_build.h) ---

inline constexpr const char* kCandidateFileName = "candidate.cpp";
inline constexpr const char* kLibraryFileName = "candidate.so";
inline constexpr const char* kVectorReportName = "vector-report";

struct CompileVariant {
  std::string above, below;        // around the candidate; `below` empty: the declaration of `launch`
  std::vector<std::string> flags;  // beside CompileFlags and ReportFlags
};

// Compiles in the folder `work`, without the cache. Afterwards the library is there if the text compiles. `source` is
// without knobs. Throws Error like CompileCpp.
Ran CompileIn(const std::filesystem::path& work, const Compiler& compiler, const SizedProblem& problem,
              const std::string& source, const CompileOptions& options, const CompileVariant& variant);

// The start of a process in the sandbox of compilers that sees and may write to the folder `work`, where it begins. The
// program and its arguments follow in argv. `file_mb`: the most that a file may take.
SpawnOptions ToolProcess(const Compiler& compiler, const CompileOptions& options,
                         const std::filesystem::path& work, int64_t file_mb = kMaxLibraryBytes >> 20);

}  // namespace kevin
