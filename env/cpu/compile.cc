#include "env/cpu/compile.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "env/error.h"
#include "env/problem/text.h"
#include "env/process/files.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"
#include "env/process/spawn.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCppSourceName = "candidate.cpp";
constexpr const char* kWrapperName = "wrapper.cpp";

fs::path FindInPath(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return access(name.c_str(), X_OK) == 0 ? fs::path(name) : fs::path();
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    // The wrapper of a compiler cache would write outside the sandbox.
    if (folder.find("ccache") != std::string::npos) continue;
    const fs::path candidate = fs::path(folder) / name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string Prelude(const SizedProblem& problem) {
  const bool has_bf16 =
      std::any_of(problem.arguments.begin(), problem.arguments.end(),
                  [](const ConcreteTensor& tensor) { return tensor.spec.dtype == DType::kBF16; });
  std::string text = has_bf16 ? Bf16Cpp() : "";
  for (const auto& [name, value] : problem.symbols)
    text += "constexpr long " + name + " = " + std::to_string(value) + ";\n";
  return text;
}

// The compiled text. The candidate stays a file of its own, so that messages show its own lines, and an open
// comment or #if in it cannot reach the text around it. A second declaration makes the compiler compare the
// signature.
std::string Wrapper(const SizedProblem& problem) {
  return Prelude(problem) + "#include \"" + kCppSourceName + "\"\n#line 1 \"required-signature\"\n" +
         LaunchSignature(*problem.problem) + ";\n";
}

// The line "In file included from" names a file that the author does not know.
std::string WithoutWrapper(std::string log) {
  const std::string included = std::string("In file included from ") + kWrapperName + ":";
  for (size_t at; (at = log.find(included)) != std::string::npos;) {
    const size_t end = log.find('\n', at);
    log.erase(at, end == std::string::npos ? std::string::npos : end + 1 - at);
  }
  return log;
}

std::string ReadText(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) {
    throw Error(ExitCode::kBroken, "cannot write " + path.string() + ": " + std::strerror(errno),
                "free some disk space; nothing is lost, `--continue` goes on");
  }
}

SpawnOptions CompilerProcess(const Compiler& compiler, const CompileOptions& options, const fs::path& work) {
  SpawnOptions spawn;
  spawn.namespaces = options.namespaces;
  SandboxedCompiler sandboxed{options.runner.string(),
                              options.namespaces,
                              work.string(),
                              options.limits.compile_memory_mb,
                              static_cast<int64_t>(options.limits.compile_timeout_s) + 1,
                              {}};
  const fs::path prefix = compiler.path.parent_path().parent_path();
  if (prefix != "/usr" && prefix != "/")
    sandboxed.shown = {prefix.string()};  // a compiler of the user: show its folder
  spawn.argv = CompilerCommand(sandboxed);
  spawn.argv.push_back(compiler.path.string());
  spawn.argv.insert(spawn.argv.end(), CompileFlags().begin(), CompileFlags().end());
  spawn.argv.insert(spawn.argv.end(), {"-o", "candidate.so", kWrapperName});
  const std::string temporary = options.namespaces ? kSandboxWorkPath : work.string();
  spawn.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C", "TMPDIR=" + temporary, "SOURCE_DATE_EPOCH=0"};
  return spawn;
}

// A cache entry is a folder that appears whole or not at all.
void Publish(const fs::path& work, const fs::path& entry) {
  std::error_code error;
  fs::rename(work, entry, error);  // another process may have been first; the entries are equal
  if (error && !fs::exists(entry)) {
    throw Error(ExitCode::kBroken, "cannot store " + entry.string() + ": " + error.message(),
                "check the cache folder");
  }
}

Compiled FromEntry(const fs::path& entry) {
  Compiled compiled;
  compiled.log = ReadText(entry / "log");
  if (fs::exists(entry / "candidate.so")) compiled.library = entry / "candidate.so";
  return compiled;
}

}  // namespace

Compiler FindCompiler() {
  const char* chosen = std::getenv("KEVIN_CXX");
  for (const std::string& name :
       chosen ? std::vector<std::string>{chosen} : std::vector<std::string>{"g++", "clang++"}) {
    const fs::path path = FindInPath(name);
    if (path.empty()) continue;
    SpawnOptions spawn;
    spawn.argv = {path.string(), "--version"};
    spawn.environment = {"LC_ALL=C", "PATH=/usr/bin:/bin"};
    const Ran ran = RunToEnd(spawn, 20, 4096);
    if (ran.status == 0 && !ran.timed_out) return {path, ran.output.substr(0, ran.output.find('\n'))};
  }
  throw Error(
      ExitCode::kMachine,
      chosen ? std::string("compiler ") + chosen + ": not found or not usable" : "no C++ compiler found",
      "install one (apt-get install g++) or set KEVIN_CXX to its path");
}

const std::vector<std::string>& CompileFlags() {
  static const std::vector<std::string> kFlags = {"-std=c++20",
                                                  "-O3",
                                                  "-march=native",
                                                  "-fopenmp",
                                                  "-shared",
                                                  "-fPIC",
                                                  "-fvisibility=default",
                                                  "-fmax-errors=10",
                                                  "-fdiagnostics-color=never",
                                                  "-w",
                                                  "-x",
                                                  "c++"};
  return kFlags;
}

Compiled CompileCpp(const Compiler& compiler, const SizedProblem& problem, const std::string& source,
                    const CompileOptions& options) {
  const std::string wrapper = Wrapper(problem);
  // -march=native means another thing on another processor.
  std::string identity = compiler.path.string() + "\n" + compiler.version + "\n" + CpuModel() +
                         CpuFeatures() + "\n" + std::to_string(options.limits.compile_memory_mb) + " MB\n";
  for (const std::string& flag : CompileFlags()) identity += flag + "\n";
  const fs::path entry = options.cache_directory / "cpp" / Sha256Hex(identity + wrapper + source);
  if (fs::exists(entry / "log")) {
    Compiled compiled = FromEntry(entry);
    compiled.cached = true;
    return compiled;
  }
  const WorkFolder folder(options.cache_directory / "cpp", "compile");
  const fs::path work = folder.path() / "work";
  fs::create_directory(work);
  WriteText(work / kCppSourceName, source + "\n");
  WriteText(work / kWrapperName, wrapper);
  Compiled compiled;
  const DeviceLock lock("cpu", LockMode::kShared, &compiled.wait_s, options.stop);
  const Ran ran = RunToEnd(CompilerProcess(compiler, options, work), options.limits.compile_timeout_s,
                           static_cast<size_t>(options.limits.max_log_bytes), options.stop);
  compiled.log = WithoutWrapper(Printable(ran.output));
  if (ran.timed_out || (WIFSIGNALED(ran.status) && WTERMSIG(ran.status) == SIGKILL)) {
    compiled.timed_out = true;  // not cached: the load of the machine is not a property of the text
    return compiled;
  }
  if (!WIFEXITED(ran.status) || (WEXITSTATUS(ran.status) != 0 && ran.output.empty())) {
    compiled.log += "the compiler " + DescribeStatus(ran.status);
  }
  if (WIFEXITED(ran.status) && WEXITSTATUS(ran.status) == 125) {
    throw Error(ExitCode::kBroken, "the compiler's sandbox failed: " + ran.output, "run `kevin doctor`");
  }
  WriteText(work / "log", compiled.log);
  if (ran.status != 0) fs::remove(work / "candidate.so");
  Publish(work, entry);
  Compiled stored = FromEntry(entry);
  stored.wait_s = compiled.wait_s;
  return stored;
}

}  // namespace kevin
