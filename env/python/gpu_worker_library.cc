// The part of kevin-python-worker.so for a worker on a GPU (env/python/gpu_worker.py): the sandbox around the making of its
// context and the warm-up, the memory of the evaluator, torch's allocator in the pool. Like the rest of that library nothing
// of it is believed.

#include "env/python/gpu_worker_library.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "env/error.h"
#include "env/gpu/runner/device_memory.h"
#include "env/gpu/runner/driver.h"
#include "env/python/kernel_activity.h"
#include "env/python/pool_allocator.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

constexpr unsigned kNoTiming = 2, kSpin = 1;
constexpr int kRelaxedCapture = 2, kIsCaptured = 1;

// Asks the driver without ending a capture that is under way.
class DuringCaptures {
 public:
  DuringCaptures() { Cu().ThreadExchangeStreamCaptureMode(&mode_); }
  ~DuringCaptures() { Cu().ThreadExchangeStreamCaptureMode(&mode_); }
  DuringCaptures(const DuringCaptures&) = delete;
  DuringCaptures& operator=(const DuringCaptures&) = delete;

 private:
  int mode_ = kRelaxedCapture;
};

class CudaPoolDevice final : public PoolDevice {
 public:
  uint64_t CaptureOf(Stream stream) override {
    int status = 0;
    unsigned long long id = 0;
    if (Cu().StreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr) != 0) return 0;
    return status == kIsCaptured ? id : 0;
  }
  Event Record(Stream stream) override {
    const DuringCaptures relaxed;
    CuHandle event = nullptr;
    if (Cu().EventCreate(&event, kNoTiming) != 0) return nullptr;
    if (Cu().EventRecord(event, stream) == 0) return event;
    Cu().EventDestroy(event);
    return nullptr;
  }
  bool HasPassed(Event event) override {
    const DuringCaptures relaxed;
    return Cu().EventQuery(event) == 0;
  }
  void Destroy(Event event) override { Cu().EventDestroy(event); }
  bool Synchronize() override { return Cu().CtxSynchronize() == 0; }
};

constexpr size_t kWarmUpBytes = size_t{128} << 20;  // the largest blocks are cuBLAS's workspaces, 32 MiB each

std::unique_ptr<ActivityRecording> recording;

CudaPoolDevice& pool_device = *new CudaPoolDevice;  // as long as the process

// Memory, and who hands it out. The default has none.
class Region {
 public:
  Region() = default;
  explicit Region(SharedDeviceMemory memory)
      : memory_(std::move(memory)),
        allocator_(std::make_unique<PoolAllocator>(memory_.data(), memory_.bytes(), pool_device)) {}

  PoolAllocator& allocator() { return *allocator_; }
  uint64_t data() const { return memory_.data(); }
  uint64_t bytes() const { return memory_.bytes(); }
  bool Contains(uint64_t address) const { return address - data() < bytes(); }

 private:
  SharedDeviceMemory memory_;
  std::unique_ptr<PoolAllocator> allocator_ = std::make_unique<PoolAllocator>(0, 0, pool_device);
};

// The pool serves the job. What comes before it lies in a region of this process's own, of which no block is handed out
// any more afterwards.
struct GpuWorkerMemory {
  Region warm_up, pool;
  SharedDeviceMemory inputs;
  Region* serving = &warm_up;
};

GpuWorkerMemory* gpu_memory = nullptr;  // never freed: tensors use it until the process ends
std::atomic<uint64_t> next_place = 0;   // of the next tensor that is made; 0: in the region that serves

void* AllocateInPool(size_t bytes, PoolDevice::Stream stream) {
  if (const uint64_t place = next_place.exchange(0)) return reinterpret_cast<void*>(place);
  Region& region = *gpu_memory->serving;
  const uint64_t address = region.allocator().Allocate(bytes, stream);
  if (address != 0) return reinterpret_cast<void*>(address);
  const PoolStatistics used = region.allocator().statistics();
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes >> 20,
                   " MiB. Of ", region.bytes() >> 20, " MiB for a candidate ", used.allocated >> 20,
                   " MiB are allocated and ", used.reserved >> 20, " MiB reserved.");
}

PoolAllocator& AllocatorOf(uint64_t address) {
  return (gpu_memory->warm_up.Contains(address) ? gpu_memory->warm_up : gpu_memory->pool).allocator();
}

void FreeInPool(void* data) {
  const auto address = reinterpret_cast<uint64_t>(data);
  AllocatorOf(address).Free(address);
}

// Where a test lets a host's memory stand for a device's (tests/env/gpu/fake_device.cc), torch's CPU tensors lie in the pool.
class HostPoolAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &FreeInPool, c10::DeviceType::CPU};
    void* data = AllocateInPool(bytes, nullptr);
    return {data, data, &FreeInPool, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeInPool; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

int Guarded(char* error, int error_bytes, const std::function<void()>& work) {
  try {
    work();
    return 1;
  } catch (const Error& failure) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", failure.what());
  } catch (const DriverError& failure) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", failure.text().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace kevin

using kevin::gpu_memory;

extern "C" {

// Once. `before_lock` runs in the new root folder, before Landlock and seccomp; the driver makes its threads there.
void KevinEnterGpuSandbox(int namespaces, const char* const* folders, int count, int64_t max_file_bytes,
                          int64_t cpu_limit_s, int may_compile, void (*before_lock)()) {
  kevin::SandboxOptions options;
  options.profile = may_compile ? kevin::SandboxProfile::kGpuPythonBuild : kevin::SandboxProfile::kGpuPython;
  options.namespaces = namespaces != 0;
  options.read_only.assign(folders, folders + count);
  options.max_file_bytes = max_file_bytes;
  options.cpu_limit_s = cpu_limit_s;
  options.before_lock = before_lock;
  kevin::EnterWorkerSandbox(options);
}

// Makes the context, and memory for the warm-up. `device` -1: a host's memory stands for a device's. 0: `error` has the
// reason.
int KevinGpuOpen(int device, char* error, int error_bytes) {
  return kevin::Guarded(error, error_bytes, [&] {
    kevin::LoadDriver();
    const int number = std::max(device, 0);
    KEVIN_CU(DevicePrimaryCtxSetFlags, number, kevin::kSpin);
    kevin::UsePrimaryContext(number);
    auto memory = std::make_unique<kevin::GpuWorkerMemory>();
    memory->warm_up = kevin::Region(kevin::SharedDeviceMemory::Create(number, kevin::kWarmUpBytes));
    gpu_memory = memory.release();
    if (device < 0) c10::SetAllocator(c10::DeviceType::CPU, new kevin::HostPoolAllocator, 10);
  });
}

// Nothing is allocated until the pool comes. The memory of the warm-up goes back to the device, unless a tensor or a
// library still uses some of it. The bytes that stay.
uint64_t KevinGpuEndWarmUp() {
  kevin::Region& warm_up = gpu_memory->warm_up;
  gpu_memory->serving = &gpu_memory->pool;
  warm_up.allocator().Release();
  const kevin::PoolStatistics used = warm_up.allocator().statistics();
  if (used.reserved == 0) warm_up = kevin::Region();
  return warm_up.bytes();
}

// Once, before any code of a candidate runs: from here on torch allocates in the pool. The address of its memory; 0:
// `error` has the reason.
uint64_t KevinGpuTakePool(int device, int fd, uint64_t bytes, char* error, int error_bytes) {
  kevin::Guarded(error, error_bytes, [&] {
    gpu_memory->pool = kevin::Region(
        kevin::SharedDeviceMemory::Import(std::max(device, 0), fd, bytes, kevin::Access::kReadWrite));
    kevin::SetArena(reinterpret_cast<std::byte*>(gpu_memory->pool.data()));
  });
  return gpu_memory->pool.data();
}

// The inputs of all slots. They are read-only for this process unless it changes that itself, which changes its own copy.
uint64_t KevinGpuMapInputs(int device, int fd, uint64_t bytes, char* error, int error_bytes) {
  kevin::Guarded(error, error_bytes, [&] {
    gpu_memory->inputs =
        kevin::SharedDeviceMemory::Import(std::max(device, 0), fd, bytes, kevin::Access::kReadOnly);
  });
  return gpu_memory->inputs.data();
}

// Of torch.cuda.memory.CUDAPluggableAllocator.
void* KevinGpuAllocate(ssize_t bytes, int, void* stream) {
  return kevin::AllocateInPool(static_cast<size_t>(bytes), stream);
}
void KevinGpuFree(void* data, ssize_t, int, void*) { kevin::FreeInPool(data); }
void KevinGpuRecordStream(void* data, void* stream) {
  const auto address = reinterpret_cast<uint64_t>(data);
  kevin::AllocatorOf(address).RecordStream(address, stream);
}
void KevinGpuRelease() { gpu_memory->serving->allocator().Release(); }

// The next tensor that is made lies at this address; 0: in the pool.
void KevinGpuPlaceNext(uint64_t address) { kevin::next_place = address; }

// 10 numbers, in the order of PoolStatistics, and the pool's bytes.
void KevinGpuStatistics(uint64_t* numbers) {
  const kevin::PoolStatistics s = gpu_memory->pool.allocator().statistics();
  const uint64_t all[] = {s.allocated,   s.most_allocated,        s.reserved, s.most_reserved,
                          s.live_blocks, s.allocations,           s.frees,    s.joins,
                          s.failures,    gpu_memory->pool.bytes()};
  std::copy(std::begin(all), std::end(all), numbers);
}
void KevinGpuResetPeaks() { gpu_memory->pool.allocator().ResetPeaks(); }

// Records what runs on the device, until KevinGpuTakeActivities. 0: `error` has the reason.
int KevinGpuRecord(char* error, int error_bytes) {
  return kevin::Guarded(error, error_bytes,
                        [] { kevin::recording = std::make_unique<kevin::ActivityRecording>(); });
}

// A line each, "BEGIN END NAME" in nanoseconds; owned by this library until the next call. Null: `error` has the reason.
const char* KevinGpuTakeActivities(char* error, int error_bytes) {
  static std::string lines;
  lines.clear();
  const int taken = kevin::Guarded(error, error_bytes, [] {
    for (const kevin::DeviceActivity& each : kevin::recording->Take())
      lines += fmt::format("{} {} {}\n", each.begin_ns, each.end_ns, each.name);
  });
  kevin::recording.reset();
  return taken ? lines.c_str() : nullptr;
}

// Launches are as short as before the first recording again. 0: `error` has the reason.
int KevinGpuEndRecorder(char* error, int error_bytes) {
  return kevin::Guarded(error, error_bytes, kevin::EndRecorder);
}

// Waits for all work of the context. The driver's code, 0: none failed.
int KevinGpuSynchronize() { return kevin::Cu().CtxSynchronize(); }

}  // extern "C"
