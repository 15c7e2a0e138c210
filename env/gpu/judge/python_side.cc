#include "env/gpu/judge/python_side.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "env/error.h"
#include "env/process/resident_sessions.h"
#include "env/python/python_job.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kWarmLimitMs = 60'000;
constexpr int64_t kGpuWorkerCpuLimit_s =
    24 * 3600;  // waiting for the GPU is computing; calls have limits of their own
constexpr size_t kContextBytes = size_t{640} << 20;  // with the kernels that torch loads
constexpr size_t kMostSpares = 6, kProcessorsOfSpares = 8, kSparesOfProcessors = 3;

std::multiset<int> worker_ids;  // of the one thread that has workers

std::string LogOf(const WaitingProcess& waiting) {
  const Mapping log(waiting.log.get(), kLogBytes, Access::kReadOnly, false);
  const auto* text = reinterpret_cast<const char*>(log.data());
  return {text, std::find(text, text + kLogBytes, '\0')};
}

// The processor of all timed workers of a device, from which this process keeps away: it awaits them without sleeping. Not
// the first one, where much else runs. nullopt: there are too few, and workers run anywhere.
std::optional<int> TakeProcessor(int device) {
  constexpr size_t kFewest = 4;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return std::nullopt;
  std::vector<int> processors;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &usable)) processors.push_back(cpu);
  }
  if (processors.size() < kFewest) return std::nullopt;
  const int taken = processors[static_cast<size_t>(2 + 2 * device) % processors.size()];
  CPU_CLR(taken, &usable);
  if (sched_setaffinity(0, sizeof(usable), &usable) != 0) return std::nullopt;
  return taken;
}

// Until the worker says that it is warm.
void AwaitWarm(WarmWorker* worker) {
  if (worker->is_warm) return;
  const WaitingProcess& waiting = worker->waiting;
  pollfd ready{waiting.socket.get(), POLLIN, 0};
  char byte = 0;
  worker->is_warm = poll(&ready, 1, kWarmLimitMs) > 0 && recv(waiting.socket.get(), &byte, 1, 0) == 1;
  if (worker->is_warm) return;
  const std::string log = LogOf(waiting);
  throw Error(
      ExitCode::kMachine,
      "a Python worker cannot use the GPU: " + (log.empty() ? "it ended, or was not ready in a minute" : log),
      "check `$KEVIN_PYTHON -c \"import torch; torch.ones(1).cuda()\"` with a torch 2.11 that has CUDA 13 "
      "(python3 -m pip install torch==2.11.0); kinds cuda and ptx are not concerned");
}

}  // namespace

WorkerId::WorkerId(int pid) : pid_(pid) { worker_ids.insert(pid); }

WorkerId& WorkerId::operator=(WorkerId&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

WorkerId::~WorkerId() {
  if (const auto found = worker_ids.find(pid_); found != worker_ids.end()) worker_ids.erase(found);
}

size_t SparesFor(int processors, size_t free_bytes) {
  const size_t warm_at_once =
      static_cast<size_t>(std::max(processors, 0)) * kSparesOfProcessors / kProcessorsOfSpares;
  const size_t with_room = free_bytes / 8 / (2 * kContextBytes);
  return std::clamp(std::min(warm_at_once, with_room), kLeastSpares, kMostSpares);
}

size_t PoolBytes(const WorkerNeeds& needs, size_t free_bytes, int workers, size_t most_room) {
  constexpr size_t kUnit = size_t{2} << 20;
  const auto share = [&](size_t taken, int of) {
    return free_bytes > taken ? (free_bytes - taken) / static_cast<size_t>(of) : 0;
  };
  const size_t both = std::min(share(needs.truth, std::max(workers - 1, 1)), share(0, workers));
  const size_t pool = both > needs.inputs ? both - needs.inputs : 0;
  const size_t room = pool > needs.least_pool ? std::min(pool - needs.least_pool, most_room) : 0;
  return std::max((needs.least_pool + room) / kUnit, size_t{1}) * kUnit;
}

PythonSide::PythonSide(std::string name, WarmWorker worker, int device, size_t pool_bytes,
                       size_t inputs_bytes)
    : name_(std::move(name)),
      pool_(SharedDeviceMemory::Create(device, pool_bytes)),
      inputs_(SharedDeviceMemory::Create(device, inputs_bytes)),
      id_(std::move(worker.id)),
      waiting_(std::move(worker.waiting)) {}

std::vector<int> PythonSide::ProcessIds() { return {worker_ids.begin(), worker_ids.end()}; }

void PythonSide::Send(const std::string& job, int bundle_fd, int files_fd) {
  const Fd inputs = inputs_.Export(), pool = pool_.Export();
  SendJob(waiting_.socket.get(), job, {pool.get(), inputs.get(), files_fd, bundle_fd, waiting_.log.get()});
  process_ = std::make_unique<BatchProcess>(std::move(waiting_));
}

void PythonSide::Kill() {
  const int pid = process_ ? process_->pid() : waiting_.process.pid();
  if (pid <= 0) return;  // it has ended
  kill(pid, SIGKILL);
  // Left for its owner to reap.
  siginfo_t state{};
  waitid(P_PID, static_cast<id_t>(pid), &state, WEXITED | WNOWAIT);
}

GpuWorkers::GpuWorkers(PythonWorkers& workers, const GpuWorkersOptions& options)
    : workers_(workers),
      options_(options),
      processor_(options.on_host ? std::nullopt : TakeProcessor(options.device)),
      kept_spares_(options.spares) {}

GpuWorkers::~GpuWorkers() { DropSpares(); }

WarmWorker GpuWorkers::Start(bool may_compile) {
  WarmWorker worker;
  worker.waiting = BatchProcess::Start(workers_);
  worker.id = WorkerId(worker.waiting.process.pid());
  const json job = {{"gpu",
                     {{"device", options_.on_host ? -1 : options_.device},
                      {"may_compile", may_compile ? 1 : 0},
                      {"processor", may_compile ? -1 : processor_.value_or(-1)}}},
                    {"max_file_bytes", kPythonFileBytes},
                    {"cpu_limit_s", kGpuWorkerCpuLimit_s}};
  ++started_;
  const int log = worker.waiting.log.get();
  SendJob(worker.waiting.socket.get(), job.dump(), {worker.waiting.page_fd.get(), log, log, log, log});
  return worker;
}

void GpuWorkers::DropSpares() {
  spares_.clear();
  compiling_spares_.clear();
}

// A candidate that took the memory of the GPU meanwhile, and has ended, may have kept a spare from its context.
void GpuWorkers::MakeWarm(WarmWorker* worker, bool may_compile) {
  try {
    AwaitWarm(worker);
  } catch (const Error&) {
    *worker = Start(may_compile);
    AwaitWarm(worker);
  }
}

bool GpuWorkers::Settle() {
  bool waited = false;
  for (const bool may_compile : {false, true}) {
    std::deque<WarmWorker>& spares = SparesOf(may_compile);
    std::deque<WarmWorker> warm;
    for (; !spares.empty(); spares.pop_front()) {
      waited |= !spares.front().is_warm;
      try {
        MakeWarm(&spares.front(), may_compile);
        warm.push_back(std::move(spares.front()));
      } catch (const Error& error) {
        if (!IsOutOfMemory(error)) throw;
      }
    }
    spares = std::move(warm);
  }
  return waited;
}

size_t GpuWorkers::ColdSpares() const {
  size_t cold = 0;
  for (const auto* spares : {&spares_, &compiling_spares_})
    cold += static_cast<size_t>(std::count_if(spares->begin(), spares->end(),
                                              [](const WarmWorker& spare) { return !spare.is_warm; }));
  return cold;
}

size_t GpuWorkers::ContextBytesToCome(size_t workers) const {
  const size_t all = 2 * kept_spares_ + workers,
               warm = spares_.size() + compiling_spares_.size() - ColdSpares();
  return options_.on_host || all < warm ? 0 : (all - warm) * kContextBytes;
}

bool GpuWorkers::HasRoomForContext() const {
  return MemoryOfDevice().free > (options_.on_host ? 0 : (ColdSpares() + 1) * kContextBytes);
}

void GpuWorkers::RefillOf(bool may_compile) {
  std::deque<WarmWorker>& spares = SparesOf(may_compile);
  while (spares.size() < kept_spares_ && HasRoomForContext()) spares.push_back(Start(may_compile));
}

void GpuWorkers::Refill() {
  RefillOf(false);
  if (has_compiling_) RefillOf(true);
}

void GpuWorkers::RefillIfFew(size_t thirds) {
  if (HasFew(true, thirds)) {
    Refill();
  } else if (HasFew(false, thirds)) {
    RefillOf(false);
  }
}

void GpuWorkers::KeepSpares(size_t count) {
  kept_spares_ = count;
  for (const bool may_compile : {false, true}) {
    std::deque<WarmWorker>& spares = SparesOf(may_compile);
    while (spares.size() > count) spares.pop_back();
  }
}

WarmWorker GpuWorkers::Take(bool may_compile) {
  has_compiling_ |= may_compile;
  std::deque<WarmWorker>& spares = SparesOf(may_compile);
  if (spares.empty()) {
    spares.push_back(Start(may_compile));
    Refill();
  }
  WarmWorker worker = std::move(spares.front());
  spares.pop_front();
  MakeWarm(&worker, may_compile);
  return worker;
}

}  // namespace kevin
