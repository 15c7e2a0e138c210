#include "env/gpu/compile/compiler_pool.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>

#include "env/error.h"
#include "env/gpu/compile/device_source.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// It serves thousands of texts; the farm limits the time of each.
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
  spawn.niceness = kCompilerNiceness;
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
      if (n < 0 && errno != EINTR && errno != EAGAIN) return CompilerAnswer::kEnded;
      if (n > 0) sent += static_cast<size_t>(n);
    }
    if (!(ready.revents & (POLLIN | POLLHUP | POLLERR))) continue;
    char chunk[65536];
    const ssize_t n = read(socket_.get(), chunk, sizeof(chunk));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return CompilerAnswer::kEnded;
    incoming.append(chunk, static_cast<size_t>(n));
    if (incoming.size() >= sizeof(expected)) std::memcpy(&expected, incoming.data(), sizeof(expected));
    if (expected > kMaxMessageBytes || incoming.size() > sizeof(expected) + kMaxMessageBytes)
      return CompilerAnswer::kEnded;
    if (incoming.size() >= sizeof(expected) && incoming.size() - sizeof(expected) >= expected) {
      *bytes = incoming.substr(sizeof(expected));
      return bytes->size() == expected ? CompilerAnswer::kReplied : CompilerAnswer::kEnded;
    }
  }
}

// How the process ended, after it stopped answering.
std::string CompilerProcess::DescribeEnd() {
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
    answer = CompilerAnswer::kEnded;
  }
  socket_.Reset();
  if (answer == CompilerAnswer::kEnded) *how = DescribeEnd();
  return answer;
}

namespace {

// How long there must be nothing to do before headers are precompiled.
constexpr std::chrono::milliseconds kIdle(50);

}  // namespace

CompilerPool::CompilerPool(CudaToolchain toolchain, CompileFarmOptions options)
    : toolchain_(std::move(toolchain)), options_(std::move(options)) {
  const int count = options_.processes > 0 ? options_.processes : UsableCpus();
  for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { Serve(i); });
}

CompilerPool::~CompilerPool() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

PoolAnswer CompilerPool::Compile(const CompilerRequest& request,
                                 const std::vector<std::filesystem::path>& folders) {
  std::future<PoolAnswer> answer;
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back({request, folders, {}});
    answer = jobs_.back().answer.get_future();
    if (request.kind == "cuda" && folders.empty()) {
      last_ = request;
      last_.text.clear();
    }
  }
  changed_.notify_all();
  return answer.get();
}

bool CompilerPool::IsNext(int index) const {
  const auto before = std::distance(idle_.begin(), idle_.find(index));
  return static_cast<size_t>(before) < jobs_.size();
}

void CompilerPool::Serve(int index) {
  Worker worker;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    idle_.insert(index);
    if (IsNext(index)) {
      idle_.erase(index);
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      try {
        job.answer.set_value(Do(&worker, job));
      } catch (...) {
        job.answer.set_exception(std::current_exception());
      }
      lock.lock();
      continue;
    }
    const bool cold = worker.warmed < WarmUpTexts().size();
    if (!cold || threads_.size() < 2 || last_.kind.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (changed_.wait_for(lock, kIdle) != std::cv_status::timeout || !jobs_.empty() || stop_ || warming_)
      continue;
    warming_ = true;
    idle_.erase(index);
    const CompilerRequest like = last_;
    lock.unlock();
    WarmUp(&worker, like);
    lock.lock();
    warming_ = false;
    if (!jobs_.empty()) changed_.notify_all();
  }
}

PoolAnswer CompilerPool::Do(Worker* worker, const Job& job) {
  const std::string bytes = ToBytes(job.request);
  PoolAnswer answer;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!worker->process.Running() || worker->process.folders() != job.folders || attempt > 0) {
      *worker = Worker();
      worker->process = CompilerProcess(toolchain_, options_, job.folders);
    }
    const CompilerAnswer how =
        worker->process.Ask(bytes, options_.limits.compile_timeout_s, &answer.reply, &answer.ended);
    answer.timed_out = how == CompilerAnswer::kTimedOut;
    if (answer.timed_out) {
      answer.ended.clear();
      return answer;
    }
    if (how == CompilerAnswer::kReplied && answer.reply.status != CompilerStatus::kCompilerFailed) {
      answer.ended.clear();
      return answer;
    }
    if (how == CompilerAnswer::kReplied)
      answer.ended = answer.reply.log.substr(0, answer.reply.log.find('\n'));
  }
  *worker = Worker();  // its memory does not shrink again: replace it
  return answer;
}

// Only for speed: an error here occurs again with the text of a candidate, and is reported then.
void CompilerPool::WarmUp(Worker* worker, const CompilerRequest& like) {
  CompilerRequest request = like;
  request.names.clear();
  const std::string& text = WarmUpTexts()[worker->warmed++];
  request.text = BuildDeviceSource(text + "__global__ void warm_up() {}\n", {}).text;
  if (std::find(request.options.begin(), request.options.end(), "-pch") == request.options.end())
    request.options.insert(request.options.end(), {"-pch", "-pch-messages=false"});
  CompilerReply reply;
  std::string how;
  try {
    if (!worker->process.Running()) worker->process = CompilerProcess(toolchain_, options_, {});
    worker->process.Ask(ToBytes(request), options_.limits.compile_timeout_s, &reply, &how);
  } catch (const std::exception&) {
    worker->process = CompilerProcess();
    worker->warmed = WarmUpTexts().size();
  }
}

}  // namespace kevin
