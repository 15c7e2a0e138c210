#include "env/python/python_kind.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "env/cpu/library_cache.h"
#include "env/diagnosis/diagnosis_run.h"
#include "env/diagnosis/stages.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/problem/text.h"
#include "env/process/files.h"
#include "env/process/find_program.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"
#include "env/python/python_process.h"
#include "env/python/torch_headers.h"
#include "env/sandbox/sandbox.h"
#include "env/sandbox/self_test.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTorchSeries = "2.11.";
constexpr double kFactsLimit_s = 30;
constexpr int64_t kBuildMemoryMb = 16384;  // addresses: the interpreter with torch takes 3 GB of them
constexpr int64_t kBuildFileMb = 256;
constexpr size_t kMostHeaderBytes = size_t{16} << 20;  // of a bundle, with the sources of its extensions
constexpr int kDeepestHeader = 8;  // to write JSON takes a part of the stack for each level
// As build_candidate.py writes it where there is something to compile once more.
constexpr const char* kAsked = "\"asked\": [{";
// A build may take this many times the limit of a kernel's compile: with torch's headers nvcc alone takes minutes.
constexpr double kBuildTimeFactor = 5;
// Exit statuses of build_candidate.py: it has told why; its own imports fail.
constexpr int kRefused = 1, kCannotStart = 70;
// The line that build_candidate.py prints before the candidate's import.
constexpr const char* kImported = "\nkevin-build: the candidate is imported now\n";
constexpr const char* kHowToGetPython =
    "install it with `python3 -m pip install torch==2.11.0`, or set KEVIN_PYTHON to a Python that has it";

// ../share/kevin beside the programs, else the source tree that they were built from.
fs::path ScriptFolder(const fs::path& program_directory) {
  const fs::path installed = program_directory.parent_path() / "share/kevin";
  std::error_code error;
  return fs::exists(installed / "worker.py", error) ? installed : fs::path(KEVIN_SOURCE_PYTHON);
}

void WriteFileIn(const fs::path& folder, const std::string& name, const std::string& text) {
  std::ofstream out(folder / name, std::ios::binary);
  out << text;
  if (!out.flush())
    throw Error(ExitCode::kBroken, "cannot write " + (folder / name).string(), "free some disk space");
}

// A script beside worker.py in the sandbox of compilers, which writes to the folder `work`; its arguments follow in argv.
SpawnOptions ScriptProcess(const PythonSetup& setup, const std::string& script, const CompileOptions& options,
                           const std::string& cuda_architecture, const fs::path& work,
                           const std::vector<fs::path>& folders, int64_t file_mb = kBuildFileMb) {
  SpawnOptions spawn;
  spawn.namespaces = options.namespaces;
  if (!cuda_architecture.empty()) spawn.niceness = kCompilerNiceness;
  std::vector<std::string> shown = setup.folders;
  const fs::path scripts = fs::path(setup.script).parent_path();
  shown.push_back(scripts.string());
  for (const fs::path& folder : folders) shown.push_back(folder.string());
  spawn.argv =
      CompilerCommand({options.runner.string(), options.namespaces, work.string(), kBuildMemoryMb,
                       static_cast<int64_t>(PythonBuildLimit_s(options.limits)) + 1, shown, file_mb});
  spawn.argv.insert(spawn.argv.end(), {setup.python, "-I", "-B", (scripts / script).string()});
  const std::string temporary = options.namespaces ? kSandboxWorkPath : work.string();
  spawn.environment = {"PATH=/usr/local/cuda/bin:/usr/bin:/bin",
                       "LC_ALL=C",
                       "HOME=" + temporary,
                       "TMPDIR=" + temporary,
                       "TORCH_EXTENSIONS_DIR=" + temporary,
                       "CUDA_VISIBLE_DEVICES=",
                       "OMP_NUM_THREADS=1",
                       "MAX_JOBS=2",
                       "USER=kevin"};
  if (!cuda_architecture.empty()) spawn.environment.push_back("TORCH_CUDA_ARCH_LIST=" + cuda_architecture);
  return spawn;
}

std::vector<fs::path> FoldersOfBuild(const PythonSetup& setup, const fs::path& sets) {
  const fs::path programs = fs::path(setup.library).parent_path(), libraries = programs.parent_path() / "lib";
  std::vector<fs::path> folders = {programs, sets.parent_path()};
  std::error_code ignored;
  if (fs::is_directory(libraries, ignored)) folders.push_back(libraries);  // of a bundle
  return folders;
}

SpawnOptions BuildProcess(const PythonSetup& setup, const std::string& kind, const std::string& headers,
                          const fs::path& sets, const CompileOptions& options,
                          const std::string& cuda_architecture, const fs::path& work) {
  SpawnOptions spawn = ScriptProcess(setup, "build_candidate.py", options, cuda_architecture, work,
                                     FoldersOfBuild(setup, sets));
  spawn.argv.insert(spawn.argv.end(), {kind, setup.library, headers, sets.string()});
  return spawn;
}

// For the builds that follow.
void CountHeaders(const PythonSetup& setup, const fs::path& sets, const std::vector<std::string>& flags,
                  const CompileOptions& options, const std::string& cuda_architecture) {
  CountWantedHeaders(sets, flags, [&](const fs::path& work) {
    SpawnOptions spawn =
        ScriptProcess(setup, "torch_headers.py", options, cuda_architecture, work, {}, kTorchHeadersMb);
    spawn.argv.insert(spawn.argv.end(), flags.begin(), flags.end());
    return RunToEnd(std::move(spawn), options.patience * PythonBuildLimit_s(options.limits),
                    static_cast<size_t>(options.limits.max_log_bytes), options.stop);
  });
}

// Takes the line kImported out of what a build has printed. Nothing that the candidate prints comes before it.
bool TakeImported(std::string* output) {
  const size_t at = output->find(kImported);
  if (at == std::string::npos) return false;
  output->erase(at, std::strlen(kImported));
  return true;
}

// Where a script works, and what is kept of it.
struct BuildFolders {
  explicit BuildFolders(const fs::path& of_bundles) : temporary(of_bundles, "compile") {
    fs::create_directory(work);
    fs::create_directory(kept);
  }
  // Whether there is a bundle to keep: a folder or a link in its place is the candidate's doing.
  bool KeepBundle() const {
    std::error_code error;
    if (!fs::is_regular_file(fs::symlink_status(work / kLibraryFileName, error))) return false;
    fs::rename(work / kLibraryFileName, kept / kLibraryFileName, error);
    return !error;
  }

  const WorkFolder temporary;
  const fs::path work = temporary.path() / "work", kept = temporary.path() / "kept";
};

void TakeEntry(const CachedLibrary& entry, Compiled* compiled) {
  compiled->library = entry.library;
  compiled->log = entry.log;
  compiled->in_use = entry.in_use;
}

// The line of JSON that a bundle begins with. The import may have written it: it stays a text. Empty: too long, or none.
std::string HeaderOf(const fs::path& bundle) {
  std::string line(kMostHeaderBytes, '\0');
  std::ifstream in(bundle, std::ios::binary);
  in.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(in.gcount()));
  const size_t end = line.find('\n');
  return end == std::string::npos ? "" : line.substr(0, end);
}

// A bundle is a line of JSON and the files behind it.
bool CopyBundleWithStages(const fs::path& bundle, const std::vector<std::string>& names, const fs::path& to) {
  const std::string line = HeaderOf(bundle);
  std::ifstream in(bundle, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(line.size()) + 1);
  const auto is_shallow = [](int depth, json::parse_event_t, json&) { return depth <= kDeepestHeader; };
  json header = json::parse(line, is_shallow, false);
  if (!header.is_object()) return false;
  header["stages"] = names;
  std::ofstream out(to, std::ios::binary);
  out << header.dump(-1, ' ', false, json::error_handler_t::replace) << '\n' << in.rdbuf();
  if (!out.flush()) throw Error(ExitCode::kBroken, "cannot write " + to.string(), "free some disk space");
  return true;
}

}  // namespace

PythonSetup FindPythonSetup(const fs::path& program_directory) {
  const char* chosen = std::getenv("KEVIN_PYTHON");
  const std::string name = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  const fs::path python = FindProgram(name);
  if (python.empty())
    throw Error(ExitCode::kMachine, "kernels in Python need a Python with torch, and there is no " + name,
                kHowToGetPython);
  PythonSetup setup;
  setup.python = python.string();
  setup.script = (ScriptFolder(program_directory) / "worker.py").string();
  PythonProcess process({setup.python, "-I", "-B", setup.script, "--facts"});
  std::string line;
  if (process.Read(kFactsLimit_s, &line) != PythonProcess::Event::kLine)
    throw Error(ExitCode::kMachine, setup.python + ": " + process.DescribeEnd(), kHowToGetPython);
  const json facts = json::parse(line, nullptr, false);
  if (!facts.is_object() || facts.contains("error") || !facts.contains("torch"))
    throw Error(ExitCode::kMachine, setup.python + ": this Python has no torch", kHowToGetPython);
  setup.torch_version = facts.at("torch");
  if (!setup.torch_version.starts_with(kTorchSeries)) {
    throw Error(ExitCode::kMachine,
                setup.python + " has torch " + setup.torch_version + ", and Kevin's is " + kTorchSeries + "0",
                kHowToGetPython);
  }
  setup.folders = facts.at("folders").get<std::vector<std::string>>();
  setup.library = RequireProgram(program_directory, "kevin-python-worker.so").string();
  return setup;
}

double PythonBuildLimit_s(const Limits& limits) { return kBuildTimeFactor * limits.compile_timeout_s; }

fs::path BundleFolder(const fs::path& cache_directory) {
  const fs::path folder = cache_directory / "python";
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder;
}

Compiled RebuildExtensions(const PythonSetup& setup, const std::string& compiler_version,
                           const fs::path& bundle, const CompileOptions& options) {
  const std::string header = HeaderOf(bundle);
  Compiled compiled;
  if (header.find(kAsked) == std::string::npos) return compiled;
  const std::string key = Sha256Hex("extensions 1\n" + setup.python + "\n" + setup.torch_version + "\n" +
                                    compiler_version + "\n" + CpuModel() + CpuFeatures() + "\n" + header);
  const fs::path folder = BundleFolder(options.cache_directory);
  LibraryCache cache(folder, options.cache_limit_bytes);
  std::optional<CachedLibrary> entry = cache.Find(key);
  if (!entry) {
    const BuildFolders folders(folder);
    const fs::path &work = folders.work, &kept = folders.kept;
    WriteFileIn(work, "header.json", header);
    const fs::path sets = TorchHeaderSets(setup, compiler_version, options.cache_directory);
    const DeviceLock lock("cpu", options.lock, &compiled.wait_s, options.stop);
    SpawnOptions spawn =
        ScriptProcess(setup, "rebuild_extensions.py", options, "", work, FoldersOfBuild(setup, sets));
    spawn.argv.push_back(sets.string());
    const UsageLimits usage = UsageLimitsOfScript(work);
    Ran ran = RunToEnd(std::move(spawn), options.patience * PythonBuildLimit_s(options.limits),
                       static_cast<size_t>(options.limits.max_log_bytes), options.stop, usage);
    TakeWantedHeaders(&ran.output);
    if (ran.status != 0 || !folders.KeepBundle()) {
      compiled.timed_out = ran.timed_out || WasKilled(ran);
      compiled.on_clock = ran.timed_out;
      compiled.log = "the extensions did not compile once more: " + Printable(ran.output) + ran.exceeded;
      return compiled;
    }
    WriteFileIn(kept, "log", Printable(ran.output));
    entry = cache.Store(kept, key);
  }
  TakeEntry(*entry, &compiled);
  return compiled;
}

Compiled BuildPython(const PythonSetup& setup, const std::string& compiler_version,
                     const Candidate& candidate, bool torch_headers, const CompileOptions& options,
                     const std::string& cuda_architecture) {
  // They matter to load_inline only.
  const std::string headers =
      torch_headers && candidate.source.find("load_inline") != std::string::npos ? "torch" : "own";
  const std::string key =
      Sha256Hex("python bundle 5\n" + headers + "\n" + candidate.kind + "\n" + setup.python + "\n" +
                setup.torch_version + "\n" + compiler_version + cuda_architecture + "\n" + CpuModel() +
                CpuFeatures() + "\n" + candidate.source);
  const fs::path folder = BundleFolder(options.cache_directory);
  LibraryCache cache(folder, options.cache_limit_bytes);
  Compiled compiled;
  std::optional<CachedLibrary> entry = cache.Find(key);
  compiled.cached = entry.has_value();
  if (!entry) {
    const BuildFolders folders(folder);
    const fs::path &work = folders.work, &kept = folders.kept;
    WriteFileIn(work, "candidate.py", candidate.source);
    const fs::path sets = TorchHeaderSets(setup, compiler_version, options.cache_directory);
    const DeviceLock lock("cpu", options.lock, &compiled.wait_s, options.stop);
    Ran ran =
        RunToEnd(BuildProcess(setup, candidate.kind, headers, sets, options, cuda_architecture, work),
                 options.patience * PythonBuildLimit_s(options.limits),
                 static_cast<size_t>(options.limits.max_log_bytes), options.stop, UsageLimitsOfScript(work));
    const std::optional<std::vector<std::string>> wanted = TakeWantedHeaders(&ran.output);
    const int own_status = !TakeImported(&ran.output) && WIFEXITED(ran.status) ? WEXITSTATUS(ran.status) : 0;
    if (ran.timed_out || WasKilled(ran)) {
      compiled.log = Printable(ran.output);
      compiled.on_clock = ran.timed_out;
      compiled.timed_out = true;  // not cached: the load of the machine is not a property of the text
      return compiled;
    }
    if (own_status == kNoSandboxStatus)
      throw Error(ExitCode::kBroken, "the compiler's sandbox failed: " + ran.output, "run `kevin doctor`");
    if (own_status == kCannotStart)
      throw Error(ExitCode::kMachine, setup.python + ": " + Printable(ran.output), kHowToGetPython);
    std::string log = Printable(ran.output);
    if (!ran.exceeded.empty()) {
      log += (log.empty() ? "the import was ended: " : "\nthe import was ended: ") + ran.exceeded;
    } else if (ran.status == 0) {
      if (!folders.KeepBundle()) log += "the import ended the process before its end";
    } else if (ran.output.empty() || !WIFEXITED(ran.status) || WEXITSTATUS(ran.status) != kRefused) {
      log += (log.empty() ? "the import " : "\nthe import ") + DescribeStatus(ran.status);
    }
    WriteFileIn(kept, "log", log);
    entry = cache.Store(kept, key);
    if (ran.status == 0 && wanted) CountHeaders(setup, sets, *wanted, options, cuda_architecture);
  }
  TakeEntry(*entry, &compiled);
  return compiled;
}

std::optional<Diagnosis> DiagnoseStagesInPython(const fs::path& bundle, const std::vector<std::string>& names,
                                                const fs::path& cache_directory,
                                                const std::function<json(const fs::path& marked)>& run) {
  const auto start = std::chrono::steady_clock::now();
  const WorkFolder temporary(BundleFolder(cache_directory), "diagnose");
  const fs::path marked = temporary.path() / kLibraryFileName;
  if (!CopyBundleWithStages(bundle, names, marked)) return std::nullopt;
  DiagnosisRun ran = DiagnosisRunFromJson(run(marked));
  if (!ran.failure.empty()) return std::nullopt;
  Diagnosis& found = ran.found;
  found.stages = ReadStageTimes(ran.log, names);
  if (found.stages.empty()) found.stage_problem = "no call reached the end of its timer";
  found.seconds = SecondsSince(start);
  return std::move(found);
}

std::string RequirePythonIsolation(const EnvironmentOptions& options, const fs::path& runner, bool namespaces,
                                   SandboxProfile profile) {
  if (!namespaces && !options.unsafe_python) {
    throw Error(
        ExitCode::kMachine,
        "kernels in Python are judged only where their files and network can be isolated, and this machine "
        "permits no namespaces",
        "run `kevin doctor`, or accept the risk with --unsafe-python (every report then says so)");
  }
  SelfTestOptions test;
  test.runner = runner;
  test.canary_folder = options.cache_directory / "self-test";
  test.namespaces = namespaces;
  test.profile = profile;
  const std::string succeeded = RequireSandbox(test, options.unsafe_python);
  if (!succeeded.empty()) return "reduced (a candidate in Python can: " + succeeded + ")";
  return namespaces ? "" : "reduced (--unsafe-python, without namespaces)";
}

}  // namespace kevin
