#pragma once
// Streams and the device guard. Only in extensions with CUDA.

#include <cuda_runtime.h>
#include <kevin/macros.h>

namespace kevin_torch {
namespace cuda {

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream, DeviceIndex device) : stream_(stream), device_(device) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  DeviceIndex device_index() const { return device_; }
  void synchronize() const {
    if (cudaStreamSynchronize(stream_) != cudaSuccess)
      Raise(__FILE__, __LINE__, "CUDA error: cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_;
  DeviceIndex device_;
};

inline DeviceIndex current_device() { return static_cast<DeviceIndex>(table->current_device()); }
inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  return {static_cast<cudaStream_t>(table->current_stream(device)), device >= 0 ? device : current_device()};
}

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex device) : before_(table->exchange_device(device)) {}
  explicit CUDAGuard(Device device) : before_(table->exchange_device(Checked(device))) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() { table->exchange_device(before_); }

 private:
  static int32_t Checked(Device device) {
    if (!device.is_cuda())
      Raise(__FILE__, __LINE__, "CUDAGuard: expected a CUDA device, but got " + device.str());
    return device.has_index() ? device.index() : table->current_device();
  }
  int32_t before_;
};

class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(optional<Device> device) {
    if (device) guard_.emplace(*device);
  }
  explicit OptionalCUDAGuard(optional<DeviceIndex> device) {
    if (device) guard_.emplace(*device);
  }

 private:
  optional<CUDAGuard> guard_;
};

inline void CheckCuda(cudaError_t error, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  Raise(file, line, TextOf("CUDA error: ", cudaGetErrorString(error)));
}

}  // namespace cuda
}  // namespace kevin_torch

#define C10_CUDA_CHECK(expression) ::kevin_torch::cuda::CheckCuda(expression, __FILE__, __LINE__)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

namespace c10 {
namespace cuda {
using namespace kevin_torch::cuda;
}
}  // namespace c10
namespace at {
namespace cuda {
using namespace kevin_torch::cuda;
}
}  // namespace at
