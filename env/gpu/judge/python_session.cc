#include "env/gpu/judge/python_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "env/error.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/process/machine.h"
#include "env/python/pool_allocator.h"
#include "env/python/python_job.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr double kReferenceLimit_s = 120;
// Of empty batches: more as long as they take little time. Beside long calls they matter less.
constexpr int kLeastEmptyTries = 9, kMostEmptyTries = 25;
constexpr double kEmptyBudget_s = 0.1;
constexpr int kBatchCostTries = 15;
constexpr double kLongBatch_us = 5000;
constexpr double kLeastWork = 0.05;  // of a batch, however little is left beside the empty call
constexpr size_t kMostParts = kMaxSlots * kMaxArguments;
constexpr unsigned kWideBlocks = 2112;
// Beside outputs and weights: cuBLAS's workspaces, small tensors.
constexpr size_t kLeastRoom = size_t{128} << 20;
// Of candidates, where eager has no more: to fill a pool takes time.
constexpr size_t kMostRoom = size_t{16} << 30;
// Of the free memory, what eager has beyond its least pool.
constexpr size_t kPartsForReference = 8;
// The reference, a candidate, and the kernel that it is compared with.
constexpr int kWorkersAtATime = 3;

// As in env/gpu/runner/trusted_python.cc.
struct CopyPart {
  CuDevicePtr to = 0, from = 0;
  long long vectors = 0;
};

GpuSessionOptions ForPython(GpuSessionOptions options) {
  RequireKindTakes(options.problem, "modelnew");
  options.for_python = true;
  return options;
}

size_t L2Bytes(int device) { return static_cast<size_t>(AttributeOf(device, kCuL2Bytes)); }

}  // namespace

GpuPythonSession::GpuPythonSession(GpuSessionOptions options, GpuWorkers& workers, bool alone)
    : workers_(workers),
      is_alone_(alone),
      base_(ForPython(std::move(options))),
      parts_(kMostParts * sizeof(CopyPart)),
      sample_places_(kOutputSamples * sizeof(CuDevicePtr)),
      sampled_(kOutputSamples * sizeof(uint32_t)),
      flush_(2 * L2Bytes(base_.options().device) + (size_t{8} << 20)),
      number_(sizeof(uint64_t)) {
  if (base_.sized().outputs.size() > kMaxOutputs)
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{}: kinds in Python can have {} outputs", base_.sized().problem->id, kMaxOutputs),
        "use kind cuda or ptx");
  MeasureNeeds();
  const size_t free_bytes = FreeForPools(kWorkersAtATime);
  reference_pool_bytes_ =
      PoolBytes(needs_, free_bytes, kWorkersAtATime, alone ? free_bytes : free_bytes / kPartsForReference);
  StartReference();
  PlanPools();
}

void GpuPythonSession::MeasureNeeds() {
  size_t outputs = 0, weights = 0;
  for (const ConcreteTensor& output : base_.sized().outputs)
    outputs += PoolAllocator::BlockBytes(static_cast<uint64_t>(output.bytes));
  for (const ConcreteTensor& input : base_.sized().inputs)
    weights += input.spec.is_param ? PoolAllocator::BlockBytes(static_cast<uint64_t>(input.bytes)) : 0;
  needs_.inputs = base_.inputs_memory().bytes();
  // A module has weights of its own until its first call, and there may be two modules.
  needs_.least_pool = static_cast<size_t>(slots()) * outputs + 2 * weights + kLeastRoom;
  if (base_.options().on_host) return;  // no memory of the device
  const int64_t before = TakeTorchBytes(base_.options().device).now;
  GpuChecker(base_).TruthOf(0);
  base_.Synchronize();
  needs_.truth =
      static_cast<size_t>(std::max<int64_t>(TakeTorchBytes(base_.options().device).most - before, 0));
}

size_t GpuPythonSession::FreeForPools(size_t workers) const {
  const size_t cached =
                   base_.options().on_host ? 0 : static_cast<size_t>(TorchCacheBytes(base_.options().device)),
               taken = workers_.options().kept_bytes + workers_.ContextBytesToCome(workers);
  return std::max(MemoryOfDevice().free + cached, taken) - taken;
}

bool GpuPythonSession::PlanPools() {
  constexpr int kWorkers = kWorkersAtATime - 1;
  const size_t most_room = std::max(kMostRoom, reference_pool_bytes_);
  candidate_pool_bytes_ = PoolBytes(needs_, FreeForPools(kWorkers), kWorkers, most_room);
  return candidate_pool_bytes_ >= reference_pool_bytes_ / 10 * 9;
}

std::unique_ptr<PythonSide> GpuPythonSession::MakeSide(const std::string& name, bool may_compile,
                                                       size_t pool_bytes) {
  WarmWorker worker = workers_.Take(may_compile);
  if (!base_.options().on_host &&
      MemoryOfDevice().free < pool_bytes + needs_.inputs + workers_.options().kept_bytes)
    ReleaseTorchCache();
  return std::make_unique<PythonSide>(name, std::move(worker), base_.options().device, pool_bytes,
                                      needs_.inputs);
}

std::string GpuPythonSession::JobOf(const std::string& role, const PythonSide& side,
                                    bool examined_later) const {
  json job = PythonJob(base_.sized(), base_.layout(), base_.slots(), role == "reference");
  job["role"] = role;
  job["examined_later"] = examined_later;
  job["pool_bytes"] = side.pool().bytes();
  job["inputs_bytes"] = base_.inputs_memory().bytes();
  job["tf32"] = base_.options().tf32;
  job["threads"] = 1;
  return job.dump(-1, ' ', false, json::error_handler_t::replace);
}

void GpuPythonSession::StartReference() {
  reference_.reset();  // its memory is needed
  empty_us_ = copy_us_ = batch_us_ = 0;
  reference_ = MakeSide("reference", false, reference_pool_bytes_);
  const Fd nothing = CreateSharedFile("kevin-nothing", 1);
  reference_->Send(JobOf("reference", *reference_), nothing.get(), nothing.get());
  workers_.Settle();
  if (const auto end = reference_->process().WaitReady(kReferenceLimit_s))
    throw Error(ExitCode::kBroken,
                "the reference worker: " + end->message + "\n" + reference_->process().Log(), "try again");
  const std::vector<uint16_t> all = AllSlots();
  Draw(all);
  ReferenceTotalUs(all);
  for (int i = 0; i < 5; ++i) EmptyUs(all.size());
  std::vector<double> one, many;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kMostEmptyTries && (i < kLeastEmptyTries || SecondsSince(start) < kEmptyBudget_s);
       ++i) {
    one.push_back(EmptyUs(1));
    many.push_back(EmptyUs(all.size()));
  }
  empty_us_ = Median(one);
  if (all.size() > 1)
    copy_us_ = std::max(0.0, (Median(many) - empty_us_) / static_cast<double>(all.size() - 1));
  reference_us_ = ReferenceTotalUs(all) / static_cast<double>(all.size());
  RenewBatchCost();
  std::vector<double> times_us;
  for (int i = 0; i < 5; ++i) times_us.push_back(CallUs(ReferenceTotalUs(all), all.size()));
  reference_us_ = Median(times_us);
  CheckReference();
}

double GpuPythonSession::ReferenceTotalUs(std::span<const uint16_t> slots) {
  const Batch batch = Run(*reference_, slots, kReferenceLimit_s);
  if (batch.end)
    throw Error(ExitCode::kBroken,
                "the reference worker: " + batch.end->message + "\n" + reference_->process().Log(),
                "try again");
  return batch.total_us;
}

void GpuPythonSession::RenewBatchCost() {
  batch_us_ = std::max(empty_us_ - copy_us_, 0.0);
  const std::vector<uint16_t> all = AllSlots();
  const auto wanted = static_cast<size_t>(std::clamp(std::ceil(kLongBatch_us / reference_us_), 2.0, 1e3));
  const size_t calls = std::min(all.size(), wanted);
  if (calls < 2) return;
  std::vector<double> one, many;
  for (int i = 0; i < kBatchCostTries; ++i) {
    one.push_back(ReferenceTotalUs(std::span(all).first(1)));
    many.push_back(ReferenceTotalUs(std::span(all).first(calls)));
  }
  const double call_us = (Median(many) - Median(one)) / static_cast<double>(calls - 1);
  batch_us_ = std::max(Median(one) - call_us, batch_us_);
}

// It runs the reference's text as Python, where the truth is TorchScript: both must mean the same.
void GpuPythonSession::CheckReference() {
  const uint16_t slot = 0;
  const std::span<const uint16_t> slots(&slot, 1);
  Draw(slots);
  const Batch batch = Run(*reference_, slots, kReferenceLimit_s);
  std::string wrong = batch.end ? batch.end->message : batch.refused;
  if (wrong.empty()) wrong = Take(*reference_, slots, 1);
  if (wrong.empty()) {
    base_.TimeReferenceUs(slot);
    const CheckResult check = GpuChecker(base_).AgainstTruth(slot);
    if (!check.ok) wrong = check.message;
  }
  if (!wrong.empty())
    throw Error(ExitCode::kBroken,
                base_.sized().problem->id +
                    ": the reference gives other values in Python than in TorchScript: " + wrong,
                "report it; kinds without Python are not concerned");
}

std::unique_ptr<PythonSide> GpuPythonSession::Start(const std::string& name, int bundle_fd,
                                                    const Examined& examined) {
  auto side = MakeSide(name, false, candidate_pool_bytes_);
  // Fresh memory would be zero, which a kernel could rely on.
  PoisonOnDevice(base_.Function("kevin_poison"), base_.stream(), side->pool().data(), side->pool().bytes(),
                 PoisonForWorkspace(base_.random()()));
  base_.Synchronize();
  side->Send(JobOf("candidate", *side, examined.is_due), bundle_fd, examined.caches->get());
  return side;
}

std::vector<uint16_t> GpuPythonSession::AllSlots() const {
  std::vector<uint16_t> all(static_cast<size_t>(slots()));
  std::iota(all.begin(), all.end(), uint16_t{0});
  return all;
}

std::vector<uint16_t> GpuPythonSession::DrawSlots(int calls) {
  std::vector<uint16_t> all = AllSlots();
  std::shuffle(all.begin(), all.end(), base_.random());
  all.resize(static_cast<size_t>(std::clamp(calls, 1, slots())));
  return all;
}

void GpuPythonSession::Draw(std::span<const uint16_t> slots, int member) {
  for (size_t call = 0; call < slots.size(); ++call)
    base_.Draw(slots[call], member < 0 ? -1 : member + static_cast<int>(call));
  base_.Synchronize();
}

void GpuPythonSession::Rearrange(std::span<const uint16_t> slots) {
  for (const uint16_t slot : slots) {
    const std::vector<TensorView> inputs = base_.Inputs(slot);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ConcreteTensor& tensor = base_.sized().inputs[i];
      // A kernel may know the values of a stored tensor: they are part of the problem.
      if (tensor.spec.stored) continue;
      auto data = reinterpret_cast<CuDevicePtr>(inputs[i].data);
      auto elements = static_cast<uint64_t>(tensor.elements);
      auto bytes = static_cast<int>(DTypeBytes(tensor.spec.dtype));
      uint64_t seed = base_.random()();
      void* arguments[] = {&data, &elements, &bytes, &seed};
      base_.Launch("kevin_rearrange", 264, 256, arguments);
      if (tensor.spec.structure == Structure::kNone) continue;
      auto rows = std::llround(std::sqrt(static_cast<double>(tensor.elements)));
      auto structure = static_cast<int>(tensor.spec.structure);
      void* imposed[] = {&data, &rows, &structure};
      base_.Launch(bytes == 2 ? "kevin_impose_16" : "kevin_impose", 528, 256, imposed);
    }
  }
  base_.Synchronize();
}

void GpuPythonSession::Upload(const PythonSide& side, std::span<const uint16_t> slots) {
  std::vector<CopyPart> parts;
  for (const uint16_t slot : slots) {
    for (const ArgumentPlace& place : base_.layout().arguments) {
      if (place.output) continue;
      const uint64_t at = place.offset + slot * place.stride;
      parts.push_back({side.inputs().data() + at, base_.inputs_memory().data() + at,
                       static_cast<long long>(place.stride / 16)});
    }
  }
  parts_count_ = static_cast<unsigned>(std::min(parts.size(), kMostParts));
  if (parts_count_ > 0) KEVIN_CU(MemcpyHtoD, parts_.data(), parts.data(), parts_count_ * sizeof(CopyPart));
}

void GpuPythonSession::FlushL2() {
  KEVIN_CU(MemsetD32Async, flush_.data(), static_cast<unsigned>(base_.random()()), flush_.bytes() / 4,
           base_.stream());
}

void GpuPythonSession::HandOut(const PythonSide& side, std::span<const uint16_t> slots) {
  Upload(side, slots);
  CuDevicePtr parts = parts_.data();
  void* arguments[] = {&parts};
  if (parts_count_ > 0) base_.LaunchWide("kevin_copy_parts", kWideBlocks, parts_count_, arguments);
  base_.Synchronize();
}

GpuPythonSession::Batch GpuPythonSession::RunCommand(PythonSide& side, std::span<const uint16_t> copied,
                                                     size_t calls, double timeout_s, bool empty,
                                                     const BatchPauses& pauses) {
  Batch batch;
  Upload(side, copied);
  base_.Synchronize();
  const auto start = std::chrono::steady_clock::now();
  CuDevicePtr parts = parts_.data();
  void* arguments[] = {&parts};
  if (parts_count_ > 0) base_.LaunchWide("kevin_copy_parts", kWideBlocks, parts_count_, arguments);
  FlushL2();
  base_.Synchronize();
  // What stopping takes differs by more than a short call. What a worker does until it is stopped changes no output any more.
  BatchPauses timed = pauses;
  timed.on_done = [&] {
    batch.refused = Locate(side, calls, empty);
    if (batch.refused.empty()) Sample(false);
    batch.total_us = SecondsSince(start) * 1e6;
  };
  double ignored_us = 0;
  const std::span<const uint16_t> slots = copied.first(calls);
  batch.end = empty ? side.process().RunEmpty(slots, timeout_s, &ignored_us, timed)
                    : side.process().RunBatch(slots, timeout_s, &ignored_us, timed);
  if (batch.end || !batch.refused.empty()) return batch;
  const std::vector<std::vector<Place>> sampled = places_;
  batch.refused = Locate(side, calls, empty);
  if (batch.refused.empty() && places_ != sampled)
    batch.refused = "deferred work: a call named other outputs after the end of its batch";
  return batch;
}

GpuPythonSession::Batch GpuPythonSession::Run(PythonSide& side, std::span<const uint16_t> slots,
                                              double timeout_s, const BatchPauses& pauses) {
  return RunCommand(side, slots, slots.size(), timeout_s, false, pauses);
}

// With so many slots copied.
double GpuPythonSession::EmptyUs(size_t copied) {
  std::vector<uint16_t> slots(copied);
  std::iota(slots.begin(), slots.end(), uint16_t{0});
  const Batch batch = RunCommand(*reference_, slots, 1, kReferenceLimit_s, true, {});
  if (batch.end)
    throw Error(ExitCode::kBroken, "the reference worker ended: " + reference_->process().Log(), "try again");
  return batch.total_us;
}

double GpuPythonSession::CallUs(double total_us, size_t calls) const {
  const auto count = static_cast<double>(calls);
  return std::max(total_us - batch_us_ - count * copy_us_, kLeastWork * total_us) / count;
}

double GpuPythonSession::SingleUs(double total_us) const {
  return std::max(total_us - empty_us_, kLeastWork * total_us);
}

}  // namespace kevin
