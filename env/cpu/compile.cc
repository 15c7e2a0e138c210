#include "env/cpu/compile.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "env/cpu/library_cache.h"
#include "env/cpu/precompiled_headers.h"
#include "env/diagnosis/vector_report.h"
#include "env/error.h"
#include "env/outcome.h"
#include "env/problem/text.h"
#include "env/process/files.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"
#include "env/process/spawn.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr double kConfirmPatience = 2;
constexpr const char* kWrapperName = "wrapper.cpp";
constexpr size_t kMaxVariantLog = size_t{1} << 20;

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
std::string Wrapper(const SizedProblem& problem, const CompileVariant& variant = {}) {
  return Prelude(problem) + variant.above + "#include \"" + kCandidateFileName + "\"\n#line 1 \"" +
         std::string(kSignatureFile) + "\"\n" +
         (variant.below.empty() ? LaunchSignature(*problem.problem) + ";\n" : variant.below);
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

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) {
    throw Error(ExitCode::kBroken, "cannot write " + path.string() + ": " + std::strerror(errno),
                "free some disk space; nothing is lost, `--continue` goes on");
  }
}

SpawnOptions CompilerProcess(const Compiler& compiler, const CompileOptions& options, const fs::path& work,
                             const CompileVariant& variant = {}) {
  SpawnOptions spawn = ToolProcess(compiler, options, work);
  spawn.argv.push_back(compiler.path.string());
  spawn.argv.insert(spawn.argv.end(), CompileFlags().begin(), CompileFlags().end());
  const std::vector<std::string> report = ReportFlags(compiler);
  spawn.argv.insert(spawn.argv.end(), report.begin(), report.end());
  spawn.argv.insert(spawn.argv.end(), variant.flags.begin(), variant.flags.end());
  // The line table names the folder, which is another one for each compile without a sandbox.
  spawn.argv.push_back("-fdebug-prefix-map=" + work.string() + "=.");
  spawn.argv.insert(spawn.argv.end(), {"-o", kLibraryFileName, kWrapperName});
  return spawn;
}

// Compiles the texts in `work`. What precompiled headers decide is how long it takes: a text that does not compile with them is
// compiled without.
Ran RunCompiler(const Compiler& compiler, const std::string& source, const CompileOptions& options,
                const fs::path& work, const CompileVariant& variant, size_t most_log) {
  const double limit_s = options.patience * options.limits.compile_timeout_s;
  const fs::path headers = PrecompiledHeaders(compiler, HeadersWorthPrecompiling(source), options);
  if (!headers.empty()) {
    Compiler seeing = compiler;
    seeing.needs.push_back(headers.string());
    CompileVariant with = variant;
    with.flags.insert(with.flags.end(), {"-include", (headers / kHeadersName).string()});
    Ran ran = RunToEnd(CompilerProcess(seeing, options, work, with), limit_s, most_log, options.stop);
    if (ran.status == 0 || ran.timed_out || WasKilled(ran)) return ran;
  }
  return RunToEnd(CompilerProcess(compiler, options, work, variant), limit_s, most_log, options.stop);
}

// Whether the disk can take what a compile may write. Asked only after a failure that looks like a full disk,
// because a text can print any message.
bool DiskHasRoom(const fs::path& work) {
  const fs::path probe = work / "probe";
  const Fd fd(open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const bool ok = fd && posix_fallocate(fd.get(), 0, kMaxLibraryBytes) == 0;
  std::error_code ignored;
  fs::remove(probe, ignored);
  return ok;
}

bool Mentions(const std::string& log, int error) {
  return log.find(std::strerror(error)) != std::string::npos;
}

std::string TooLarge() {
  return "error: the compiled kernel is larger than the limit of " + std::to_string(kMaxLibraryBytes >> 20) +
         " MB (max library size): make tables and initialised arrays smaller\n";
}

Compiled FromCache(CachedLibrary entry) {
  Compiled compiled;
  compiled.library = std::move(entry.library);
  compiled.log = std::move(entry.log);
  compiled.in_use = std::move(entry.in_use);
  return compiled;
}

// The log of a compile that has ended; removes a library that counts as failed. Throws Error(kBroken) where
// the disk or the sandbox failed.
std::string LogOf(const Ran& ran, const fs::path& work) {
  std::string log = WithoutWrapper(Printable(ran.output));
  if (WIFEXITED(ran.status) && WEXITSTATUS(ran.status) == 125)
    throw Error(ExitCode::kBroken, "the compiler's sandbox failed: " + ran.output, "run `kevin doctor`");
  if (ran.status != 0 && (Mentions(log, ENOSPC) || Mentions(log, EDQUOT)) && !DiskHasRoom(work)) {
    throw Error(ExitCode::kBroken, "no space to compile in " + work.string(),
                "free some disk space; nothing is lost, `--continue` goes on");
  }
  if (!WIFEXITED(ran.status) || (WEXITSTATUS(ran.status) != 0 && ran.output.empty()))
    log += "the compiler " + DescribeStatus(ran.status);
  std::error_code error;
  const uintmax_t bytes = fs::file_size(work / kLibraryFileName, error);
  const bool is_large = !error && bytes > static_cast<uintmax_t>(kMaxLibraryBytes);
  if (is_large || (ran.status != 0 && Mentions(log, EFBIG))) log = TooLarge() + log;
  if (ran.status != 0 || is_large) fs::remove(work / kLibraryFileName, error);
  return log;
}

}  // namespace

SpawnOptions ToolProcess(const Compiler& compiler, const CompileOptions& options, const fs::path& work,
                         int64_t file_mb) {
  SpawnOptions spawn;
  spawn.namespaces = options.namespaces;
  SandboxedCompiler sandboxed{options.runner.string(),
                              options.namespaces,
                              work.string(),
                              options.limits.compile_memory_mb,
                              static_cast<int64_t>(options.limits.compile_timeout_s) + 1,
                              compiler.needs,
                              file_mb};
  spawn.argv = CompilerCommand(sandboxed);
  const std::string temporary = options.namespaces ? kSandboxWorkPath : work.string();
  spawn.environment = {"PATH=/usr/bin:/bin", "LC_ALL=C", "TMPDIR=" + temporary, "SOURCE_DATE_EPOCH=0"};
  return spawn;
}

Ran CompileIn(const fs::path& work, const Compiler& compiler, const SizedProblem& problem,
              const std::string& source, const CompileOptions& options, const CompileVariant& variant) {
  WriteText(work / kCandidateFileName, source + "\n");
  WriteText(work / kWrapperName, Wrapper(problem, variant));
  const DeviceLock lock("cpu", LockMode::kShared, nullptr, options.stop);
  return RunCompiler(compiler, source, options, work, variant, kMaxVariantLog);
}

fs::path LibraryFolder(const fs::path& cache_directory) {
  const fs::path folder = cache_directory / "cpp";
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  return folder;
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

bool IsClang(const Compiler& compiler) { return compiler.version.find("clang") != std::string::npos; }

std::vector<std::string> ReportFlags(const Compiler& compiler) {
  std::vector<std::string> flags = {
      "-g1", "-gdwarf-4"};              // objdump reads the file names of version 4 correctly everywhere
  if (IsClang(compiler)) return flags;  // its report goes to stderr, where the errors of a candidate are
  for (std::string& flag : VectorReportFlags(false, kVectorReportName)) flags.push_back(std::move(flag));
  return flags;
}

bool WasKilled(const Ran& ran) {
  if (WIFSIGNALED(ran.status)) return WTERMSIG(ran.status) == SIGKILL;
  // By the driver, of a program that it ran. The limit on memory is one on addresses, which kills nothing.
  return ran.status != 0 &&
         (ran.output.find(": fatal error: Killed signal terminated program") != std::string::npos ||
          ran.output.find("unable to execute command: Killed") != std::string::npos);
}

Compiled CompileConfirmed(CompileOptions options,
                          const std::function<Compiled(const CompileOptions&)>& compile) {
  const Compiled first = compile(options);
  if (!first.on_clock) return first;
  options.lock = LockMode::kExclusive, options.patience = kConfirmPatience;
  Compiled again = compile(options);
  again.wait_s += first.wait_s;
  return again;
}

Compiled CompileCpp(const Compiler& compiler, const SizedProblem& problem, const std::string& source,
                    const CompileOptions& options) {
  const std::string wrapper = Wrapper(problem);
  // -march=native means another thing on another processor.
  std::string identity = compiler.path.string() + "\n" + compiler.version + "\n" + CpuModel() +
                         CpuFeatures() + "\n" + std::to_string(options.limits.compile_memory_mb) + " MB, " +
                         std::to_string(kMaxLibraryBytes) + " bytes\n";
  for (const std::string& flag : CompileFlags()) identity += flag + "\n";
  for (const std::string& flag : ReportFlags(compiler)) identity += flag + "\n";
  const std::string key = Sha256Hex(identity + wrapper + source);
  const fs::path folder = LibraryFolder(options.cache_directory);
  LibraryCache cache(folder, options.cache_limit_bytes);
  if (std::optional<CachedLibrary> entry = cache.Find(key)) {
    Compiled compiled = FromCache(std::move(*entry));
    compiled.cached = true;
    return compiled;
  }
  const WorkFolder temporary(folder, "compile");
  const fs::path work = temporary.path() / "work";
  fs::create_directory(work);
  WriteText(work / kCandidateFileName, source + "\n");
  WriteText(work / kWrapperName, wrapper);
  Compiled compiled;
  const DeviceLock lock("cpu", options.lock, &compiled.wait_s, options.stop);
  const Ran ran =
      RunCompiler(compiler, source, options, work, {}, static_cast<size_t>(options.limits.max_log_bytes));
  if (ran.timed_out || WasKilled(ran)) {
    compiled.log = WithoutWrapper(Printable(ran.output));
    compiled.on_clock = ran.timed_out;
    compiled.timed_out = true;  // not cached: the load of the machine is not a property of the text
    return compiled;
  }
  WriteText(work / "log", LogOf(ran, work));
  const double wait_s = compiled.wait_s;
  compiled = FromCache(cache.Store(work, key));
  compiled.wait_s = wait_s;
  return compiled;
}

}  // namespace kevin
