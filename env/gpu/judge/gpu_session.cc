#include "env/gpu/judge/gpu_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "env/error.h"
#include "env/gpu/judge/gpu_floor.h"
#include "env/gpu/runner/device_memory.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"
#include "env/process/resident_sessions.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

constexpr int64_t kProbeVectors = 160 << 10;  // 2.5 MiB: a few microseconds
constexpr int kProbeBlocks = 640, kProbesAtOnce = 16;
constexpr size_t kMostProbes = 96;
// Twice the standard error of a runner's offset may be that share of a tenth of eager's time.
constexpr double kOffsetShare = 0.001;
// A confirmation in pairs takes two. The driver makes one context after the other.
constexpr size_t kSpares = 6, kFewSpares = 2;
constexpr double kContext_s = 0.26;  // on an H200
constexpr size_t kRunnerContextBytes = size_t{512} << 20,
                 kShareOfSpares = 8;  // they take that part of free memory at most
// Of all sessions: of the sixteen latest a candidate's, and that of the kernel it is compared with.
constexpr size_t kMostIdle = 32;
constexpr int kWarmRuns = 2;
constexpr size_t kScratchBytes = 16;  // two counters, or four words
constexpr int kCanaryWords = 1 << 16;

}  // namespace

GpuSession::GpuSession(GpuSessionOptions options)
    : options_(std::move(options)), sized_(AtSize(options_.problem, options_.size)), counter_(kScratchBytes) {
  sized_.problem = &options_.problem;
  for (const ConcreteTensor& input : sized_.inputs) {
    const DType dtype = input.spec.dtype;
    if (dtype == DType::kI32)
      throw Error(
          ExitCode::kBadRequest,
          "input `" + input.spec.name + "`: inputs of type " + DTypeName(dtype) + " cannot be drawn yet",
          "use float32, int64 or bool inputs");
  }
  lock_name_ = DeviceLock::NameOfGpu(PciBusOf(options_.device));
  StartSpares(kContext_s);  // torch begins beside them
  reference_ = std::make_unique<Reference>(
      options_.problem, ReferenceOptions{1, options_.on_host ? -1 : options_.device, options_.tf32});
  stream_ = reference_->Stream();
  KEVIN_CU(ModuleLoadData, &module_, options_.trusted_cubin.data());
  fill_ = FillKernelsOf(module_);
  poison_kernel_ = Function("kevin_poison");
  stopwatch_ =
      std::make_unique<Stopwatch>(StopwatchOptions{options_.device, stream_, Function("kevin_scrub"), true});
  AwaitSpares(!options_.for_python);  // before memory is planned
  LayOut();
  for (int slot = 0; slot < memory_.slots; ++slot) {
    std::vector<TensorView> views = Inputs(slot);
    ForEachInOut(slot, [&](size_t output, uint64_t at) {
      views[*InOutOf(options_.problem, output)].data = reinterpret_cast<void*>(reference_inouts_.data() + at);
    });
    reference_->BindSlot(static_cast<size_t>(slot), views);
  }
  Draw(0);
  WarmAndTimeReference();
  reference_->SlotOutputs(0, sized_.outputs);  // throws if the problem file and its reference disagree
  MeasureFloor(1);
}

void GpuSession::WarmAndTimeReference() {
  try {
    for (int i = 0; i < kWarmRuns; ++i) WarmReference(0);
    reference_us_ = TimeReferenceUs(0);
  } catch (const DriverError& error) {
    if (!error.fatal()) throw;
    throw DeviceFailed(
        ExitCode::kBadRequest,
        options_.problem.id + ": the reference itself makes the GPU fail: " + error.text(),
        "an index of its inputs may be out of range, or an operator of torch not work at this --size");
  }
}

// The memory is free only when nobody maps it.
GpuSession::~GpuSession() {
  std::erase_if(options_.spares->idle, [this](SpareRunners::Idle& idle) {
    if (idle.session != this) return false;
    idle.session = nullptr;
    return idle.runner.client->Close().has_value();
  });
  if (module_) Cu().ModuleUnload(module_);
}

void GpuSession::LayOut() {
  const size_t free_bytes = MemoryOfDevice().free;
  memory_.slots = options_.for_python ? PythonSlotsOnGpu(sized_, free_bytes)
                                      : SlotsOnGpu(sized_, free_bytes, options_.reference_bytes);
  layout_ = LayOutSlots(sized_, memory_.slots);
  memory_.places = layout_.arguments;
  poison_.assign(static_cast<size_t>(memory_.slots), std::vector<Poison>(sized_.outputs.size()));
  inputs_ = SharedDeviceMemory::Create(options_.device, static_cast<size_t>(layout_.inputs_bytes));
  outputs_ = SharedDeviceMemory::Create(options_.device, static_cast<size_t>(layout_.outputs_bytes));
  memory_.inputs = inputs_.data();
  memory_.outputs = outputs_.data();
  if (layout_.inouts_bytes() > 0) {
    inouts_ = DeviceBuffer(static_cast<size_t>(layout_.inouts_bytes()));
    reference_inouts_ = DeviceBuffer(inouts_.bytes());
  }
  for (const ConcreteTensor& input : sized_.inputs) {
    stored_.push_back(input.spec.stored ? DeviceBuffer(input.spec.stored->size()) : DeviceBuffer());
    if (!input.spec.stored) continue;
    KEVIN_CU(MemcpyHtoD, stored_.back().data(), input.spec.stored->data(), input.spec.stored->size());
    KEVIN_CU(StreamSynchronize, nullptr);
  }
}

CuHandle GpuSession::Function(const char* name) const {
  CuHandle function = nullptr;
  KEVIN_CU(ModuleGetFunction, &function, module_, name);
  return function;
}

void GpuSession::Launch(const char* name, unsigned blocks, unsigned threads, void** arguments) {
  CuLaunchConfig config;
  config.grid_x = blocks;
  config.block_x = threads;
  config.stream = stream_;
  KEVIN_CU(LaunchKernelEx, &config, Function(name), arguments, nullptr);
}

void GpuSession::LaunchWide(const char* name, unsigned blocks, unsigned rows, void** arguments) {
  CuLaunchConfig config;
  config.grid_x = std::max(1U, blocks / rows);
  config.grid_y = rows;
  config.block_x = 256;
  config.stream = stream_;
  KEVIN_CU(LaunchKernelEx, &config, Function(name), arguments, nullptr);
}

void GpuSession::Synchronize() { KEVIN_CU(StreamSynchronize, stream_); }

std::vector<TensorView> GpuSession::Inputs(int slot) const {
  std::vector<TensorView> views;
  for (size_t i = 0; i < sized_.inputs.size(); ++i) {
    views.push_back(
        {reinterpret_cast<void*>(Drawn(slot, i)), sized_.inputs[i].spec.dtype, sized_.inputs[i].shape});
  }
  return views;
}

CuDevicePtr GpuSession::Drawn(int slot, size_t input) const {
  const ArgumentPlace& place = layout_.tensors[input];
  const uint64_t at = place.offset + static_cast<uint64_t>(slot) * place.stride;
  return place.inout ? inouts_.data() + at - static_cast<uint64_t>(layout_.inouts_begin)
                     : memory_.inputs + at;
}

void GpuSession::ForEachInOut(int slot, const std::function<void(size_t output, uint64_t at)>& visit) const {
  for (size_t o = 0; o < sized_.outputs.size(); ++o) {
    const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + o];
    if (place.inout)
      visit(o, place.offset + static_cast<uint64_t>(slot) * place.stride -
                   static_cast<uint64_t>(layout_.inouts_begin));
  }
}

// Each run of eager finds all memory that torch has kept free: it takes the same pieces as the run before. Outputs of other
// slots would lie between them, and the driver's memory be asked for again.
void GpuSession::RestoreReference(int slot) {
  reference_->DropOutputs();
  ForEachInOut(slot, [&](size_t output, uint64_t at) {
    KEVIN_CU(MemcpyDtoDAsync, reference_inouts_.data() + at, inouts_.data() + at,
             static_cast<size_t>(sized_.outputs[output].bytes), stream_);
  });
}

CuDevicePtr GpuSession::Output(int slot, size_t index) const {
  const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + index];
  return memory_.outputs + place.offset + static_cast<uint64_t>(slot) * place.stride;
}

ValueStream GpuSession::Draw(int slot, int member) {
  ValueStream drawing = keys_.Next();
  if (member >= 0) drawing.member = member % kMixtureMembers;
  for (size_t i = 0; i < sized_.inputs.size(); ++i) DrawTensor(slot, i, drawing);
  return drawing;
}

void GpuSession::DrawTensor(int slot, size_t index, const ValueStream& drawing) {
  const ConcreteTensor& tensor = sized_.inputs[index];
  const CuDevicePtr data = Drawn(slot, index);
  if (stored_[index].bytes() > 0) {
    KEVIN_CU(MemcpyDtoDAsync, data, stored_[index].data(), static_cast<size_t>(tensor.bytes), stream_);
    return;
  }
  FillOnDevice(fill_, stream_, data, tensor.elements, DrawingOf(tensor, options_.inputs, drawing.member),
               drawing.OfTensor(index));
}

void GpuSession::PoisonOutputs(int slot) {
  std::vector<Poison>& latest = poison_.at(static_cast<size_t>(slot));
  const uint64_t seed = random_();
  for (size_t o = 0; o < sized_.outputs.size(); ++o) {
    const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + o];
    latest[o] = PoisonFor(sized_.outputs[o].spec.dtype, seed + 2 * o * 0x9e3779b97f4a7c15ULL);
    PoisonOnDevice(poison_kernel_, stream_, Output(slot, o) - kSlotPage, place.stride, latest[o]);
  }
  ForEachInOut(slot, [&](size_t output, uint64_t at) {
    KEVIN_CU(MemcpyDtoDAsync, Output(slot, output), inouts_.data() + at,
             static_cast<size_t>(sized_.outputs[output].bytes), stream_);
  });
}

bool GpuSession::IsPoisoned(int slot, size_t index, uint64_t at, size_t bytes) {
  if (sized_.outputs[index].spec.is_inout) return false;
  constexpr uint64_t kGroup = 16;
  const uint64_t start = (kSlotPage + at) / kGroup * kGroup, within = (kSlotPage + at) % kGroup;
  unsigned char expected[kGroup] = {}, found[kGroup] = {};
  PoisonOnDevice(poison_kernel_, stream_, counter_.data(), kGroup,
                 poison_.at(static_cast<size_t>(slot)).at(index), static_cast<int64_t>(start / 4));
  Synchronize();
  KEVIN_CU(MemcpyDtoH, expected, counter_.data(), kGroup);
  KEVIN_CU(MemcpyDtoH, found, Output(slot, index) - kSlotPage + start, kGroup);
  return std::equal(expected + within, expected + within + bytes, found + within);
}

std::string GpuSession::BrokenGuard(int slot) {
  for (size_t o = 0; o < sized_.outputs.size(); ++o) {
    const ArgumentPlace& place = layout_.tensors[sized_.inputs.size() + o];
    Poison poison = poison_.at(static_cast<size_t>(slot))[o];
    CuDevicePtr region = Output(slot, o) - kSlotPage;
    const uint64_t past = kSlotPage + (static_cast<uint64_t>(sized_.outputs[o].bytes) + 3) / 4 * 4;
    KEVIN_CU(MemsetD8Async, counter_.data(), 0, counter_.bytes(), stream_);
    const std::pair<uint64_t, uint64_t> guards[] = {{0, kSlotPage}, {past, place.stride - past}};
    for (size_t g = 0; g < 2; ++g) {
      CuDevicePtr count = counter_.data() + g * sizeof(uint64_t);
      auto first = static_cast<long long>(guards[g].first / 4),
           number = static_cast<long long>(guards[g].second / 4);
      auto kind = static_cast<int>(poison.kind);
      void* arguments[] = {&region, &first, &number, &poison.seed, &kind, &count};
      Launch("kevin_count_written", 16, 256, arguments);
    }
    Synchronize();
    uint64_t counts[2] = {};
    KEVIN_CU(MemcpyDtoH, counts, counter_.data(), sizeof(counts));
    const std::string name =
        (place.inout ? "input-output `" : "output `") + sized_.outputs[o].spec.name + "`";
    if (counts[0]) return "wrote before the start of " + name;
    if (counts[1]) return "wrote past the end of " + name;
  }
  return "";
}

std::string GpuSession::AnyBrokenGuard() {
  std::string broken;
  for (int slot = 0; slot < slots() && broken.empty(); ++slot) broken = BrokenGuard(slot);
  return broken;
}

double GpuSession::TimeReferenceUs(int slot) {
  RestoreReference(slot);  // before the cache is flushed
  double us = 0;
  CountShortages([&] {
    us = stopwatch_->TimeUs([&] { reference_->RunSlot(static_cast<size_t>(slot)); }, {.seed = random_()});
  });
  return us;
}

void GpuSession::WarmReference(int slot) {
  RestoreReference(slot);
  CountShortages([&] { reference_->RunSlot(static_cast<size_t>(slot)); });
  Synchronize();
}

void GpuSession::CountShortages(const std::function<void()>& run) {
  if (options_.on_host) return run();
  const TorchShortages before = CountTorchShortages(options_.device);
  run();
  const TorchShortages after = CountTorchShortages(options_.device);
  shortages_.waits += after.waits - before.waits;
  shortages_.failures += after.failures - before.failures;
}

std::vector<TensorView> GpuSession::ReferenceOutputs(int slot) {
  return reference_->SlotOutputs(static_cast<size_t>(slot), sized_.outputs);
}

void GpuSession::StartSpares(double untimed_s) {
  if (options_.for_python) return;
  auto& clients = options_.spares->clients;
  const RunnerOptions runner{options_.runner_path, options_.device, options_.namespaces};
  size_t wanted = clients.size() + static_cast<size_t>(untimed_s / kContext_s);
  if (clients.size() < kFewSpares) wanted = std::max(wanted, clients.size() + 1);
  const size_t with_room = MemoryOfDevice().free / kShareOfSpares / kRunnerContextBytes;
  wanted = std::min(wanted, std::clamp(clients.size() + with_room, kFewSpares, kSpares));
  while (clients.size() < wanted) clients.push_back(std::make_unique<RunnerClient>(runner));
}

// A context that is being made stops the work of others for milliseconds, several times.
void GpuSession::AwaitSpares(bool must_have) {
  auto& clients = options_.spares->clients;
  for (size_t at = 0; at < clients.size();) {
    try {
      clients[at]->AwaitGreeting();
      ++at;
    } catch (const Error&) {
      const bool is_last = clients.size() == 1;
      clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(at));  // there may be no memory for so many
      if (is_last && must_have) throw;
    }
  }
}

GpuSession::Calibrated GpuSession::StartRunner() {
  if (options_.spares->clients.empty()) StartSpares(0);
  AwaitSpares(true);  // times are compared below
  Calibrated runner;
  runner.client = std::move(options_.spares->clients.front());
  options_.spares->clients.pop_front();
  runner.client->Open(inputs_, outputs_, memory_, options_.trusted_cubin);
  Calibrate(&runner);
  return runner;
}

// A runner's time of a copy against that of this process.
double GpuSession::Probe(RunnerClient* runner, long long vectors) {
  const uint64_t output = layout_.tensors[sized_.inputs.size()].offset;
  CuDevicePtr out = memory_.outputs + output, in = memory_.inputs;
  void* arguments[] = {&out, &in, &vectors};
  double ours_us = 0;
  const auto time_ours = [&] {
    ours_us =
        stopwatch_->TimeUs([&] { Launch("kevin_copy", kProbeBlocks, 256, arguments); }, {.seed = random_()});
  };
  const bool first = (random_() & 1) != 0;
  if (first) time_ours();
  CallTimes theirs;
  if (const auto fault = runner->Probe(output, 0, vectors, kProbeBlocks, random_(), &theirs))
    throw Error(ExitCode::kMachine, "the GPU runner fails before it has run any candidate: " + fault->message,
                "run `kevin doctor`");
  if (!first) time_ours();
  return theirs.event_us - ours_us;
}

// Until the offset is known well enough for this session's times: long calls need few probes. A runner that comes from a
// session of longer calls goes on.
void GpuSession::Calibrate(Calibrated* runner) {
  const long long vectors = std::min<int64_t>(
      {sized_.inputs[0].bytes / 16, layout_.inputs_bytes / 16, sized_.outputs[0].bytes / 16, kProbeVectors});
  std::vector<double>& differences = runner->differences_us;
  while (differences.size() < kMostProbes &&
         (differences.empty() || 2 * runner->offset_se_us > kOffsetShare * reference_us_ / 10)) {
    for (int i = 0; i < kProbesAtOnce; ++i) differences.push_back(Probe(runner->client.get(), vectors));
    runner->offset_us = Median(differences);
    runner->offset_se_us = 1.2533 * RobustDeviation(differences, runner->offset_us) /
                           std::sqrt(static_cast<double>(differences.size()));
  }
}

GpuSession::Calibrated GpuSession::TakeRunner(bool fresh) {
  std::vector<SpareRunners::Idle>& idle = options_.spares->idle;
  const auto of = [&idle](const GpuSession* session) {
    return std::find_if(idle.begin(), idle.end(), [=](const auto& one) { return one.session == session; });
  };
  if (fresh || idle.empty()) return StartRunner();
  auto chosen = of(this);
  const bool is_ours = chosen != idle.end();
  if (!is_ours) chosen = of(nullptr);
  if (chosen == idle.end()) chosen = idle.begin();
  Calibrated runner = std::move(chosen->runner);
  idle.erase(chosen);
  if (!is_ours) {
    runner.client->Open(inputs_, outputs_, memory_, options_.trusted_cubin);
    Calibrate(&runner);
  }
  return runner;
}

void GpuSession::Keep(Calibrated runner) {
  std::vector<SpareRunners::Idle>& idle = options_.spares->idle;
  idle.push_back({std::move(runner), this});
  if (idle.size() > kMostIdle) idle.erase(idle.begin());
}

void GpuSession::GiveBack(Calibrated runner) {
  if (!runner.client->dead() && !runner.client->Unload() && CanaryLives(runner.client.get())) {
    Keep(std::move(runner));
    return;
  }
  Calibrated fresh = StartRunner();
  if (!CanaryLives(fresh.client.get())) {
    throw Error(
        ExitCode::kMachine, "this GPU computes incorrect results",
        "see `nvidia-smi` and the kernel's log (Xid); reset the GPU or use another with --device cuda:N");
  }
  Keep(std::move(fresh));
}

bool GpuSession::CanaryLives(RunnerClient* runner) {
  CuDevicePtr out = Output(0, 0), count = counter_.data();
  int words = static_cast<int>(std::clamp<int64_t>(sized_.outputs[0].bytes / 4, 1, kCanaryWords));
  auto seed = static_cast<uint32_t>(random_());
  if (runner->Canary(layout_.tensors[sized_.inputs.size()].offset, words, seed)) return false;
  KEVIN_CU(MemsetD8Async, count, 0, sizeof(uint64_t), stream_);
  void* arguments[] = {&out, &words, &seed, &count};
  Launch("kevin_canary_check", 64, 256, arguments);
  Synchronize();
  uint64_t wrong = 0;
  KEVIN_CU(MemcpyDtoH, &wrong, count, sizeof(wrong));
  return wrong == 0;
}

double GpuSession::ClockMhz() {
  CuDevicePtr out = counter_.data();
  void* arguments[] = {&out};
  Launch("kevin_clock", 1, 1, arguments);
  Synchronize();
  uint64_t reading[2] = {};
  KEVIN_CU(MemcpyDtoH, reading, out, sizeof(reading));
  return static_cast<double>(reading[0]) / static_cast<double>(std::max<uint64_t>(reading[1], 1)) * 1e3;
}

void GpuSession::MeasureFloor(int repeats) {
  const auto launch = [this](const char* name, unsigned blocks, void** arguments) {
    Launch(name, blocks, 256, arguments);
  };
  floor_us_ = std::min(floor_us_, GpuFloorUs({sized_, layout_, memory_, counter_.data(), options_.for_python,
                                              *stopwatch_, launch},
                                             repeats));
}

}  // namespace kevin
