#include "env/gpu/compile/compiler_pool.h"

#include <algorithm>
#include <chrono>

#include "env/gpu/compile/device_source.h"
#include "env/process/machine.h"

namespace kevin {
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
        worker->process.Ask(bytes, options_.limits.compile_timeout_s, &answer.reply, &answer.died);
    answer.timed_out = how == CompilerAnswer::kTimedOut;
    if (answer.timed_out) {
      answer.died.clear();
      return answer;
    }
    if (how == CompilerAnswer::kReplied && answer.reply.status != CompilerStatus::kCompilerFailed) {
      answer.died.clear();
      return answer;
    }
    if (how == CompilerAnswer::kReplied)
      answer.died = answer.reply.log.substr(0, answer.reply.log.find('\n'));
  }
  *worker = Worker();  // out of memory once, out of memory for ever
  return answer;
}

// Only ever speeds up: whatever goes wrong here goes wrong again, and is then said, with a candidate's text.
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
