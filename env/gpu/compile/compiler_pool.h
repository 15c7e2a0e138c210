#pragma once
// The compiler processes of the farm and the threads that own them. A process that ends or exceeds its time
// is replaced. Idle ones precompile the expensive headers, one process at a time so that the others stay
// free.

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "env/gpu/compile/compile_farm.h"
#include "env/gpu/compile/compiler_protocol.h"
#include "env/process/files.h"
#include "env/process/shared_memory.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

enum class CompilerAnswer { kReplied, kTimedOut, kEnded };

// One resident kevin-gpu-compiler in its sandbox. For the thread that started it alone: the kernel ends the
// compiler together with that thread.

class CompilerProcess {
 public:
  CompilerProcess() = default;
  // Starts it; `folders` can be read beside the toolchain. Throws Error(kBroken).
  CompilerProcess(const CudaToolchain& toolchain, const CompileFarmOptions& options,
                  std::vector<std::filesystem::path> folders);
  bool Running() const { return socket_.get() >= 0; }
  const std::vector<std::filesystem::path>& folders() const { return folders_; }
  // Unless it replied, the process has ended afterwards; if it ended by itself, *how describes it. Throws
  // Error(kBroken) when its sandbox could not be set up.
  CompilerAnswer Ask(const std::string& request, double timeout_s, CompilerReply* reply, std::string* how);

 private:
  CompilerAnswer Exchange(const std::string& request, double timeout_s, std::string* bytes) const;
  std::string DescribeEnd();

  std::vector<std::filesystem::path> folders_;
  std::unique_ptr<WorkFolder> work_;  // NVRTC wants one for its precompiled headers
  Fd socket_, messages_;              // messages: its standard error
  ChildProcess process_;
};

struct PoolAnswer {
  CompilerReply reply;
  bool timed_out = false;
  std::string ended;  // not empty: a fresh compiler ended on this text too; how
};

class CompilerPool {
 public:
  CompilerPool(CudaToolchain toolchain, CompileFarmOptions options);
  ~CompilerPool();
  // Blocks until a process has answered. `folders` are visible to it. Thread-safe.
  PoolAnswer Compile(const CompilerRequest& request, const std::vector<std::filesystem::path>& folders);

 private:
  struct Job {
    CompilerRequest request;
    std::vector<std::filesystem::path> folders;
    std::promise<PoolAnswer> answer;
  };
  struct Worker {
    CompilerProcess process;
    size_t warmed = 0;  // of WarmUpTexts()
  };

  void Serve(int index);
  bool IsNext(int index) const;
  PoolAnswer Do(Worker* worker, const Job& job);
  void WarmUp(Worker* worker, const CompilerRequest& like);

  CudaToolchain toolchain_;
  CompileFarmOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  // Idle workers. The first ones get the jobs: a process that has compiled before is twice as fast.
  std::set<int> idle_;
  bool stop_ = false, warming_ = false;
  CompilerRequest last_;  // headers and options of the last CUDA text, for the warm-up; no kind: none yet
  std::vector<std::thread> threads_;
};

}  // namespace kevin
