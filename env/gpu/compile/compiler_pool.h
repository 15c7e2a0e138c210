#pragma once
// The farm's compiler processes and the threads that own them. A process that dies or takes too long is
// replaced; idle ones precompile the expensive headers, one process at a time so that the others stay free.

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "env/gpu/compile/compile_farm.h"
#include "env/gpu/compile/compiler_process.h"

namespace kevin {

struct PoolAnswer {
  CompilerReply reply;
  bool timed_out = false;
  std::string died;  // not empty: a fresh compiler, too, ended on this text: how
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
  // Workers without work. The first ones get the jobs: a process that has compiled before is twice as fast.
  std::set<int> idle_;
  bool stop_ = false, warming_ = false;
  CompilerRequest last_;  // headers and options of the last CUDA text, for the warm-up; no kind: none yet
  std::vector<std::thread> threads_;
};

}  // namespace kevin
