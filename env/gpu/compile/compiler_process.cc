#include "env/gpu/compile/compiler_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>

#include "env/error.h"
#include "env/process/runner_protocol.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// It serves thousands of texts; the time of one is limited from outside.
constexpr int64_t kCpuSeconds = 10'000'000;

std::set<fs::path> FoldersToShow(const CudaToolchain& toolchain, const CompileFarmOptions& options,
                                 const std::vector<fs::path>& extra) {
  std::set<fs::path> folders = {fs::canonical(options.compiler_program).parent_path(),
                                toolchain.nvrtc.parent_path()};
  if (!toolchain.nvjitlink.empty()) folders.insert(toolchain.nvjitlink.parent_path());
  folders.insert(toolchain.includes.begin(), toolchain.includes.end());
  folders.insert(extra.begin(), extra.end());
  std::set<fs::path> shown;
  for (const fs::path& folder : folders) {
    if (*std::next(folder.begin()) != "usr") shown.insert(folder);  // visible anyway
  }
  return shown;
}

SpawnOptions Command(const CudaToolchain& toolchain, const CompileFarmOptions& options, const fs::path& work,
                     const std::vector<fs::path>& extra) {
  SpawnOptions spawn;
  spawn.namespaces = options.namespaces;
  SandboxedCompiler sandboxed{options.runner_program.string(),  options.namespaces, work.string(),
                              options.limits.compile_memory_mb, kCpuSeconds,        {}};
  for (const fs::path& folder : FoldersToShow(toolchain, options, extra))
    sandboxed.shown.push_back(folder.string());
  spawn.argv = CompilerCommand(sandboxed);
  spawn.argv.insert(spawn.argv.end(), {fs::canonical(options.compiler_program).string(),
                                       toolchain.nvrtc.string(), toolchain.nvjitlink.string()});
  spawn.environment = {"LC_ALL=C", "CUDA_CACHE_DISABLE=1",
                       "TMPDIR=" + (options.namespaces ? kSandboxWorkPath : work.string())};
  return spawn;
}

}  // namespace

CompilerProcess::CompilerProcess(const CudaToolchain& toolchain, const CompileFarmOptions& options,
                                 std::vector<fs::path> folders)
    : folders_(std::move(folders)),
      work_(std::make_unique<WorkFolder>(options.cache_directory / "gpu-work", "compiler")) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ExitCode::kBroken, std::string("cannot make a socket: ") + std::strerror(errno));
  socket_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  messages_ = CreateSharedFile("compiler-messages", 0);
  SpawnOptions spawn = Command(toolchain, options, work_->path(), folders_);
  spawn.descriptors = {{messages_.get(), STDERR_FILENO}, {theirs.get(), kCompilerSocket}};
  process_ = Spawn(spawn);
}

CompilerAnswer CompilerProcess::Exchange(const std::string& request, double timeout_s,
                                         std::string* bytes) const {
  const uint64_t size = request.size();
  std::string outgoing(reinterpret_cast<const char*>(&size), sizeof(size));
  outgoing += request;
  size_t sent = 0;
  std::string incoming;
  uint64_t expected = 0;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (left_s <= 0) return CompilerAnswer::kTimedOut;
    pollfd ready{socket_.get(), static_cast<short>(sent < outgoing.size() ? POLLOUT | POLLIN : POLLIN), 0};
    if (poll(&ready, 1, static_cast<int>(left_s * 1000) + 1) <= 0) continue;
    if (sent < outgoing.size() && (ready.revents & POLLOUT)) {
      const ssize_t n = send(socket_.get(), outgoing.data() + sent, outgoing.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno != EINTR && errno != EAGAIN) return CompilerAnswer::kDied;
      if (n > 0) sent += static_cast<size_t>(n);
    }
    if (!(ready.revents & (POLLIN | POLLHUP | POLLERR))) continue;
    char chunk[65536];
    const ssize_t n = read(socket_.get(), chunk, sizeof(chunk));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return CompilerAnswer::kDied;
    incoming.append(chunk, static_cast<size_t>(n));
    if (incoming.size() >= sizeof(expected)) std::memcpy(&expected, incoming.data(), sizeof(expected));
    if (expected > kMaxMessageBytes || incoming.size() > sizeof(expected) + kMaxMessageBytes)
      return CompilerAnswer::kDied;
    if (incoming.size() >= sizeof(expected) && incoming.size() - sizeof(expected) >= expected) {
      *bytes = incoming.substr(sizeof(expected));
      return bytes->size() == expected ? CompilerAnswer::kReplied : CompilerAnswer::kDied;
    }
  }
}

// How it ended, once it no longer answers.
std::string CompilerProcess::Obituary() {
  int status = 0;
  if (!process_.Wait(1, &status)) {
    process_.Kill();
    return "stopped answering";
  }
  char text[1024];
  const ssize_t n = pread(messages_.get(), text, sizeof(text), 0);
  const std::string messages(text, n > 0 ? static_cast<size_t>(n) : 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) >= 125 && WEXITSTATUS(status) <= 127) {
    throw Error(ExitCode::kBroken,
                "the GPU compiler's sandbox failed: " + DescribeStatus(status) + " " + messages,
                "run `kevin doctor`");
  }
  return DescribeStatus(status) + (messages.empty() ? "" : ": " + messages);
}

CompilerAnswer CompilerProcess::Ask(const std::string& request, double timeout_s, CompilerReply* reply,
                                    std::string* how) {
  std::string bytes;
  CompilerAnswer answer = Exchange(request, timeout_s, &bytes);
  if (answer == CompilerAnswer::kReplied && FromBytes(bytes, reply)) return answer;
  if (answer == CompilerAnswer::kTimedOut) {
    process_.Kill();
  } else {
    answer = CompilerAnswer::kDied;
  }
  socket_.Reset();
  if (answer == CompilerAnswer::kDied) *how = Obituary();
  return answer;
}

}  // namespace kevin
