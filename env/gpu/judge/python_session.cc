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
#include "env/python/output_places.h"
#include "env/python/python_job.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kSamples = 1024;  // words of all outputs of a batch
constexpr double kReferenceLimit_s = 120;
constexpr int kEmptyTries = 25;
constexpr double kLeastWork = 0.05;  // of a batch, however little is left beside the empty call
constexpr uint64_t kWatch_ns = 3'000'000, kGap_ns = 100'000;
constexpr size_t kExaminedKept = 8, kMostParts = kMaxSlots * kMaxArguments;
constexpr unsigned kWideBlocks = 2112;

// As in env/gpu/runner/trusted_python.cc.
struct CopyPart {
  CuDevicePtr to = 0, from = 0;
  long long vectors = 0;
};
struct StridedTensor {
  long long shape[kMaxDims] = {}, stride[kMaxDims] = {};
  int dims = 0, bytes = 0;
};

GpuSessionOptions ForPython(GpuSessionOptions options) {
  options.for_python = true;
  return options;
}

size_t L2Bytes(int device) {
  int bytes = 0;
  KEVIN_CU(DeviceGetAttribute, &bytes, kCuL2Bytes, device);
  return static_cast<size_t>(bytes);
}

double MicrosecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return SecondsSince(start) * 1e6;
}

// What a worker of the role "examine" has written: hostile.
void ReadExamined(const std::string& text, GpuPythonSession::Examined* examined) {
  try {
    const json told = json::parse(text.substr(0, text.find('\n')));
    examined->error = told.at("error").get<std::string>();
    if (!examined->error.empty()) return;
    for (const json& kernel : told.at("kernels"))
      examined->kernels.emplace_back(kernel.at(0).get<std::string>(), kernel.at(1).get<double>());
    if (const json& us = told.at("device_us"); us.is_number() && us.get<double>() > 0)
      examined->device_us = us;
  } catch (const json::exception&) {
    examined->kernels.clear();
    if (examined->error.empty()) examined->error = "it left no result";
  }
}

}  // namespace

GpuPythonSession::GpuPythonSession(GpuSessionOptions options, GpuWorkers& workers)
    : workers_(workers),
      base_(ForPython(std::move(options))),
      parts_(kMostParts * sizeof(CopyPart)),
      sample_places_(kSamples * sizeof(CuDevicePtr)),
      sampled_(kSamples * sizeof(uint32_t)),
      flush_(2 * L2Bytes(base_.options().device) + (size_t{8} << 20)),
      number_(sizeof(uint64_t)) {
  if (base_.sized().outputs.size() > kMaxOutputs)
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{}: kinds in Python can have {} outputs", base_.sized().problem->id, kMaxOutputs),
        "use kind cuda or ptx");
  StartReference();
}

std::string GpuPythonSession::JobOf(const std::string& role) const {
  json job = PythonJob(base_.sized(), base_.layout(), base_.slots(), role == "reference");
  job["role"] = role;
  job["inputs_bytes"] = base_.inputs_memory().bytes();
  job["tf32"] = base_.options().tf32;
  job["threads"] = 1;
  return job.dump(-1, ' ', false, json::error_handler_t::replace);
}

void GpuPythonSession::StartReference() {
  reference_ = std::make_unique<PythonSide>("reference", workers_.Take(false), base_.options().device,
                                            base_.inputs_memory().bytes());
  const Fd nothing = CreateSharedFile("kevin-nothing", 1);
  reference_->Send(JobOf("reference"), nothing.get(), nothing.get());
  workers_.Settle();
  if (const auto end = reference_->process().WaitReady(kReferenceLimit_s))
    throw Error(ExitCode::kBroken,
                "the reference worker: " + end->message + "\n" + reference_->process().Log(), "try again");
  const std::vector<uint16_t> all = AllSlots();
  Draw(all);
  const auto warm = [&] {
    const Batch batch = Run(*reference_, all, kReferenceLimit_s);
    if (batch.end)
      throw Error(ExitCode::kBroken,
                  "the reference worker: " + batch.end->message + "\n" + reference_->process().Log(),
                  "try again");
    return batch.total_us;
  };
  warm();
  for (int i = 0; i < 5; ++i) EmptyUs(all.size());
  std::vector<double> one, many;
  for (int i = 0; i < kEmptyTries; ++i) {
    one.push_back(EmptyUs(1));
    many.push_back(EmptyUs(all.size()));
  }
  empty_us_ = Median(one);
  if (all.size() > 1)
    copy_us_ = std::max(0.0, (Median(many) - empty_us_) / static_cast<double>(all.size() - 1));
  std::vector<double> times_us;
  for (int i = 0; i < 5; ++i) times_us.push_back(CallUs(warm(), all.size()));
  reference_us_ = Median(times_us);
  CheckReference();
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

const GpuPythonSession::Examined& GpuPythonSession::Examine(const std::string& key, int bundle_fd,
                                                            double timeout_s) {
  const auto known =
      std::find_if(examined_.begin(), examined_.end(), [&](const auto& entry) { return entry.first == key; });
  if (known != examined_.end()) return known->second;
  Examined examined;
  examined.caches = std::make_shared<Fd>(CreateSharedFile("kevin-examined", 1));
  PythonSide side("candidate", workers_.Take(true), base_.options().device, base_.inputs_memory().bytes());
  const std::vector<uint16_t> all = AllSlots();
  Draw(all);
  HandOut(side, all);
  side.Send(JobOf("examine"), bundle_fd, examined.caches->get());
  if (const auto end = side.process().WaitReady(timeout_s)) examined.error = end->message;
  ReadExamined(ReadSharedFile(examined.caches->get()), &examined);
  if (examined_.size() == kExaminedKept) examined_.pop_front();
  examined_.emplace_back(key, std::move(examined));
  return examined_.back().second;
}

std::unique_ptr<PythonSide> GpuPythonSession::Start(const std::string& name, int bundle_fd,
                                                    const Examined& examined) {
  auto side = std::make_unique<PythonSide>(name, workers_.Take(false), base_.options().device,
                                           base_.inputs_memory().bytes());
  // Fresh memory would be zero, which a kernel could rely on.
  PoisonOnDevice(base_.Function("kevin_poison"), base_.stream(), side->pool().data(), side->pool().bytes(),
                 PoisonForWorkspace(base_.random()()));
  base_.Synchronize();
  side->Send(JobOf("candidate"), bundle_fd, examined.caches->get());
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
  batch.total_us = MicrosecondsOf([&] {
    CuDevicePtr parts = parts_.data();
    void* arguments[] = {&parts};
    if (parts_count_ > 0) base_.LaunchWide("kevin_copy_parts", kWideBlocks, parts_count_, arguments);
    FlushL2();
    base_.Synchronize();
    double ignored_us = 0;
    const std::span<const uint16_t> slots = copied.first(calls);
    batch.end = empty ? side.process().RunEmpty(slots, timeout_s, &ignored_us)
                      : side.process().RunBatch(slots, timeout_s, &ignored_us, pauses);
    if (batch.end) return;
    batch.refused = Locate(side, calls, empty);
    if (batch.refused.empty()) Sample(false);
  });
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
  return std::max(total_us - empty_us_ - (count - 1) * copy_us_, kLeastWork * total_us) / count;
}

std::string GpuPythonSession::Locate(const PythonSide& side, size_t calls, bool may_overlap) {
  places_.clear();
  std::vector<std::pair<uint64_t, uint64_t>> taken;
  const BatchProcess& process = side.process();
  for (size_t call = 0; call < calls; ++call) {
    places_.emplace_back();
    for (size_t o = 0; o < base_.sized().outputs.size(); ++o) {
      const ConcreteTensor& tensor = base_.sized().outputs[o];
      const uint64_t offset = process.PublishedOffset(call, o);
      auto strides = process.PublishedStrides(call, o, tensor.shape.size());
      const uint64_t extent =
          strides ? ExtentOfOutput(tensor, *strides) : static_cast<uint64_t>(tensor.bytes);
      if (std::string reason = RefusedPlace(tensor, offset, extent, side.pool().bytes()); !reason.empty())
        return reason;
      taken.emplace_back(offset, offset + extent);
      places_.back().push_back({side.pool().data() + offset, std::move(strides)});
    }
  }
  return may_overlap ? "" : RefusedOverlap(std::move(taken));
}

// Words at random places of each output of the last batch: as they are at its end, or again.
void GpuPythonSession::Sample(bool again) {
  std::vector<uint32_t> words(kSamples);
  if (!again) {
    std::vector<CuDevicePtr> addresses;
    const size_t outputs = base_.sized().outputs.size(), count = places_.size() * outputs;
    for (int i = 0; i < kSamples; ++i) {
      const size_t which = static_cast<size_t>(i) % count, o = which % outputs;
      const ConcreteTensor& tensor = base_.sized().outputs[o];
      const Place& place = places_[which / outputs][o];
      uint64_t element = base_.random()() % static_cast<uint64_t>(tensor.elements), at = element;
      if (place.strides) {
        at = 0;
        for (size_t d = tensor.shape.size(); d-- > 0;) {
          const auto size = static_cast<uint64_t>(tensor.shape[d]);
          at += element % size * static_cast<uint64_t>((*place.strides)[d]);
          element /= size;
        }
      }
      addresses.push_back((place.address + at * static_cast<uint64_t>(DTypeBytes(tensor.spec.dtype))) / 4 *
                          4);
    }
    KEVIN_CU(MemcpyHtoD, sample_places_.data(), addresses.data(), addresses.size() * sizeof(CuDevicePtr));
  }
  CuDevicePtr places = sample_places_.data(), out = sampled_.data();
  int count = kSamples;
  void* arguments[] = {&places, &count, &out};
  base_.Launch("kevin_sample", 4, 256, arguments);
  base_.Synchronize();
  KEVIN_CU(MemcpyDtoH, words.data(), out, words.size() * sizeof(uint32_t));
  if (!again)
    samples_ = std::move(words);
  else if (words != samples_)
    samples_.clear();
}

std::string GpuPythonSession::Changed(const PythonSide& side, std::span<const uint16_t> slots) {
  Sample(true);
  if (samples_.empty()) return "deferred work: outputs changed after the end of their batch";
  KEVIN_CU(MemsetD8Async, number_.data(), 0, sizeof(uint64_t), base_.stream());
  for (const uint16_t slot : slots) {
    for (const ArgumentPlace& place : base_.layout().arguments) {
      if (place.output) continue;
      const uint64_t at = place.offset + slot * place.stride;
      CuDevicePtr ours = base_.inputs_memory().data() + at, theirs = side.inputs().data() + at,
                  count = number_.data();
      auto words = static_cast<long long>(place.stride / 4);
      void* arguments[] = {&ours, &theirs, &words, &count};
      base_.Launch("kevin_count_different", 528, 256, arguments);
    }
  }
  base_.Synchronize();
  uint64_t different = 0;
  KEVIN_CU(MemcpyDtoH, &different, number_.data(), sizeof(different));
  return different == 0 ? "" : "it writes to its inputs or weights, which are read-only";
}

std::string GpuPythonSession::Take(const PythonSide& side, std::span<const uint16_t> slots, size_t calls) {
  if (std::string reason = Locate(side, calls, false); !reason.empty()) return reason;
  for (size_t call = 0; call < calls; ++call) {
    for (size_t o = 0; o < base_.sized().outputs.size(); ++o) {
      const ConcreteTensor& tensor = base_.sized().outputs[o];
      const Place& place = places_[call][o];
      const auto bytes = static_cast<size_t>(tensor.bytes);
      if (!place.strides) {
        KEVIN_CU(MemcpyDtoDAsync, base_.Output(slots[call], o), place.address, bytes, base_.stream());
        continue;
      }
      StridedTensor strided;
      strided.dims = static_cast<int>(tensor.shape.size());
      strided.bytes = static_cast<int>(DTypeBytes(tensor.spec.dtype));
      std::copy(tensor.shape.begin(), tensor.shape.end(), strided.shape);
      std::copy(place.strides->begin(), place.strides->end(), strided.stride);
      CuDevicePtr out = base_.Output(slots[call], o), in = place.address;
      auto elements = static_cast<long long>(tensor.elements);
      void* arguments[] = {&out, &in, &elements, &strided};
      base_.Launch("kevin_take", 528, 256, arguments);
    }
  }
  base_.Synchronize();
  return "";
}

bool GpuPythonSession::IsQuiet() {
  CuDevicePtr out = number_.data();
  uint64_t duration = kWatch_ns, longest = 0;
  void* arguments[] = {&duration, &out};
  base_.Launch("kevin_watch", 1, 1, arguments);
  base_.Synchronize();
  KEVIN_CU(MemcpyDtoH, &longest, out, sizeof(longest));
  return longest < kGap_ns;
}

}  // namespace kevin
