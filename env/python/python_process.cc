#include "env/python/python_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "env/error.h"
#include "env/process/runner_protocol.h"
#include "env/sandbox/sandbox.h"

extern char** environ;

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kErrorBytes = 4096;  // the end of standard error
constexpr double kEndLimit_s = 10;
constexpr double kLastErrors_s = 2;  // for what it wrote before its end

// The environment of this process, with CUDA devices numbered as Kevin does and with the library path from
// before a bundle's launcher changed it.
std::vector<std::string> PythonEnvironment() {
  std::vector<std::string> environment{"CUDA_DEVICE_ORDER=PCI_BUS_ID"};
  const char* outer = std::getenv("KEVIN_OUTER_LIBRARY_PATH");
  if (outer != nullptr && *outer != '\0') environment.push_back(std::string("LD_LIBRARY_PATH=") + outer);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("CUDA_DEVICE_ORDER=")) continue;
    if (outer != nullptr && text.starts_with("LD_LIBRARY_PATH=")) continue;
    environment.emplace_back(text);
  }
  return environment;
}

constexpr int64_t kMostFiles = 20'000;
constexpr int64_t kMostFileBytes = int64_t{8} << 30;
constexpr int64_t kSandboxMemory_mb = int64_t{1}
                                      << 20;  // addresses: large tensors are reserved and not touched

bool IsForPython(const std::string& entry) {
  for (const char* prefix : {"PATH=", "LANG=", "LC_", "PYTHON", "LD_LIBRARY_PATH=", "CUDA_DEVICE_ORDER=",
                             "OMP_", "MKL_", "OPENBLAS_", "TORCH_"}) {
    if (entry.starts_with(prefix)) return true;
  }
  return false;
}

// The command and the environment in the sandbox. Keys and tokens are the user's: they stay outside.
void PutIntoSandbox(const PythonSandbox& sandbox, SpawnOptions* spawn) {
  SandboxedCompiler box;
  box.runner = RequireProgram(ProgramDirectory(), "kevin-runner").string();
  box.namespaces = spawn->namespaces = NamespacesAvailable();
  box.work_directory = sandbox.work.string();
  box.memory_mb = kSandboxMemory_mb;
  box.cpu_s = static_cast<int64_t>(sandbox.cpu_limit_s) + 1;
  for (const std::filesystem::path& path : sandbox.visible) box.shown.push_back(path.string());
  for (const char* path : {"/dev/urandom", "/proc/cpuinfo", "/sys/devices/system/cpu"})
    box.shown.emplace_back(path);
  std::vector<std::string> argv = CompilerCommand(box);
  argv.insert(argv.end() - 1, {"--strict", "1"});
  if (sandbox.gpu) argv.insert(argv.end() - 1, {"--gpu", "1"});
  argv.insert(argv.end(), spawn->argv.begin(), spawn->argv.end());
  spawn->argv = std::move(argv);
  std::erase_if(spawn->environment, [](const std::string& entry) { return !IsForPython(entry); });
  const std::string home = box.namespaces ? kSandboxWorkPath : box.work_directory;
  for (const char* name :
       {"HOME=", "TMPDIR=", "XDG_CACHE_HOME=", "TORCHINDUCTOR_CACHE_DIR=", "TRITON_CACHE_DIR="})
    spawn->environment.push_back(name + home);
  spawn->environment.emplace_back("USER=kevin");
}

// The available bytes; empty at the end.
std::string ReadSome(int fd) {
  std::array<char, 4096> bytes{};
  const ssize_t count = read(fd, bytes.data(), bytes.size());
  return count > 0 ? std::string(bytes.data(), static_cast<size_t>(count)) : "";
}

}  // namespace

UsageLimits UsageLimitsOfScript(const std::filesystem::path& work) {
  return {MaxCandidateThreads(), work, kMostFiles, kMostFileBytes};
}

PythonProcess::PythonProcess(const std::vector<std::string>& argv, const PythonSandbox* sandbox) {
  int talk[2], errors[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) != 0)
    throw Error(ExitCode::kBroken, "cannot make a socket pair for Python");
  socket_ = Fd(talk[0]);
  const Fd theirs(talk[1]);
  if (pipe2(errors, O_CLOEXEC) != 0) throw Error(ExitCode::kBroken, "cannot make a pipe for Python");
  errors_ = Fd(errors[0]);
  const Fd their_errors(errors[1]);
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.environment = PythonEnvironment();
  if (sandbox != nullptr) PutIntoSandbox(*sandbox, &spawn);
  spawn.descriptors = {
      {theirs.get(), STDIN_FILENO}, {theirs.get(), STDOUT_FILENO}, {their_errors.get(), STDERR_FILENO}};
  process_ = Spawn(spawn);
  if (sandbox != nullptr) watch_.emplace(process_.pid(), UsageLimitsOfScript(sandbox->work));
}

bool PythonProcess::Write(const std::string& line) {
  const std::string text = line + "\n";
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool PythonProcess::TakeLine(std::string* line) {
  const size_t end = output_.find('\n');
  if (end == std::string::npos) return false;
  *line = output_.substr(0, end);
  output_.erase(0, end + 1);
  return true;
}

PythonProcess::Event PythonProcess::Read(double limit_s, std::string* line) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(limit_s);
  while (!TakeLine(line)) {
    const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (left_s <= 0) return Event::kTimedOut;
    if (watch_) exceeded_ = watch_->Exceeded();
    if (!exceeded_.empty()) {
      process_.Kill();
      return Event::kEnded;
    }
    std::array<pollfd, 2> waiting{{{socket_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}}};
    const double most_s = watch_ ? std::chrono::duration<double>(kUsageLook).count() : 3600;
    poll(waiting.data(), waiting.size(), static_cast<int>(std::min(left_s, most_s) * 1000) + 1);
    if (waiting[1].revents != 0) {
      const std::string more = ReadSome(errors_.get());
      if (more.empty()) errors_.Reset();  // poll ignores it from now on
      error_text_ += more;
      if (error_text_.size() > kErrorBytes) error_text_.erase(0, error_text_.size() - kErrorBytes);
    }
    if (waiting[0].revents == 0) continue;
    const std::string more = ReadSome(socket_.get());
    if (more.empty()) return Event::kEnded;
    output_ += more;
  }
  return Event::kLine;
}

std::string PythonProcess::DescribeEnd() {
  if (!exceeded_.empty()) return "was ended: " + exceeded_;
  int status = 0;
  const bool ended = process_.Wait(kEndLimit_s, &status);
  std::string text = ended ? DescribeStatus(status) : "closed its output and did not end";
  lacks_sandbox_ = ended && WIFEXITED(status) && WEXITSTATUS(status) == kNoSandboxStatus;
  if (!ended) process_.Kill();  // else its errors have no end
  // A process that it started may hold them open too.
  const auto deadline = Clock::now() + std::chrono::duration<double>(kLastErrors_s);
  while (errors_) {
    const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
    pollfd waiting{errors_.get(), POLLIN, 0};
    if (left_s <= 0 || poll(&waiting, 1, static_cast<int>(left_s * 1000) + 1) <= 0) break;
    const std::string more = ReadSome(errors_.get());
    if (more.empty()) break;
    error_text_ += more;
  }
  const size_t end = error_text_.find_last_not_of(" \n");
  if (end == std::string::npos) return text;
  error_text_.erase(end + 1);
  const size_t begin = error_text_.rfind('\n');
  return text + ": " + error_text_.substr(begin == std::string::npos ? 0 : begin + 1);
}

}  // namespace kevin
