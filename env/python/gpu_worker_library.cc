// The part of kevin-python-worker.so for a worker on a GPU (env/python/gpu_worker.py): the sandbox around the making of its
// context, the memory of the evaluator, torch's allocator in the pool. Like the rest of that library nothing of it is
// believed.

#include "env/python/gpu_worker_library.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "env/error.h"
#include "env/gpu/runner/device_memory.h"
#include "env/gpu/runner/driver.h"
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

struct GpuWorkerMemory {
  SharedDeviceMemory pool, fixed, inputs;
  CudaPoolDevice device;
  std::unique_ptr<PoolAllocator> allocator;
};

GpuWorkerMemory* gpu_memory = nullptr;  // never freed: tensors use it until the process ends
std::atomic<uint64_t> next_place = 0;   // of the next tensor that is made; 0: in the pool

void* AllocateInPool(size_t bytes, PoolDevice::Stream stream) {
  if (const uint64_t place = next_place.exchange(0)) return reinterpret_cast<void*>(place);
  const uint64_t address = gpu_memory->allocator->Allocate(bytes, stream);
  if (address != 0) return reinterpret_cast<void*>(address);
  const PoolStatistics used = gpu_memory->allocator->statistics();
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes >> 20,
                   " MiB. Of ", gpu_memory->pool.bytes() >> 20, " MiB for a candidate ", used.allocated >> 20,
                   " MiB are allocated and ", used.reserved >> 20, " MiB reserved.");
}

void FreeInPool(void* data) { gpu_memory->allocator->Free(reinterpret_cast<uint64_t>(data)); }

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

// Makes the context and imports the pool. `device` -1: a host's memory stands for a device's. 0: `error` has the reason.
int KevinGpuOpen(int device, int pool_fd, uint64_t pool_bytes, char* error, int error_bytes) {
  return kevin::Guarded(error, error_bytes, [&] {
    kevin::LoadDriver();
    const int number = std::max(device, 0);
    KEVIN_CU(DevicePrimaryCtxSetFlags, number, kevin::kSpin);
    kevin::CuHandle context = nullptr;
    KEVIN_CU(DevicePrimaryCtxRetain, &context, number);
    KEVIN_CU(CtxSetCurrent, context);
    auto memory = std::make_unique<kevin::GpuWorkerMemory>();
    memory->pool = kevin::SharedDeviceMemory::Import(number, pool_fd, pool_bytes, kevin::Access::kReadWrite);
    memory->allocator =
        std::make_unique<kevin::PoolAllocator>(memory->pool.data(), memory->pool.bytes(), memory->device);
    gpu_memory = memory.release();
    kevin::SetArena(reinterpret_cast<std::byte*>(gpu_memory->pool.data()));
    if (device < 0) c10::SetAllocator(c10::DeviceType::CPU, new kevin::HostPoolAllocator, 10);
  });
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
  gpu_memory->allocator->RecordStream(reinterpret_cast<uint64_t>(data), stream);
}
void KevinGpuRelease() { gpu_memory->allocator->Release(); }

// The next tensor that is made lies at this address; 0: in the pool.
void KevinGpuPlaceNext(uint64_t address) { kevin::next_place = address; }

// 10 numbers, in the order of PoolStatistics, and the pool's bytes.
void KevinGpuStatistics(uint64_t* numbers) {
  const kevin::PoolStatistics s = gpu_memory->allocator->statistics();
  const uint64_t all[] = {s.allocated,   s.most_allocated,        s.reserved, s.most_reserved,
                          s.live_blocks, s.allocations,           s.frees,    s.joins,
                          s.failures,    gpu_memory->pool.bytes()};
  std::copy(std::begin(all), std::end(all), numbers);
}
void KevinGpuResetPeaks() { gpu_memory->allocator->ResetPeaks(); }

// Waits for all work of the context. The driver's code, 0: none failed.
int KevinGpuSynchronize() { return kevin::Cu().CtxSynchronize(); }

}  // extern "C"
