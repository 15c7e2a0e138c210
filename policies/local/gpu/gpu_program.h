#pragma once
// Our own kernels on the GPU that torch uses: compiled by NVRTC, launched or recorded through the driver on
// torch's default stream. Both libraries are opened at run time. Torch's context must be current
// (model/device.h).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kevin::local {

struct GpuShape {
  int multiprocessors = 0;
  int block_shared_bytes = 0;  // the most that one block may ask for
  int major = 0, minor = 0;    // compute capability
};
// Of device `index`. Throws Error(kMachine) without a driver.
GpuShape ShapeOfGpu(int index);

// Makes torch's context on that device current in this thread, and with it the runtime's device. Cheap if it
// is current.
void UseGpu(int index);

struct GpuLaunch {
  unsigned grid[3] = {1, 1, 1};
  unsigned threads = 256;
  unsigned shared_bytes = 0;
  bool cooperative = false;  // all blocks run at once
  void* stream = nullptr;    // torch's default stream; a GpuStream's handle, or that of a stream of torch
};

class GpuProgram {
 public:
  // `macros`: "NAME=VALUE". Throws Error(kMachine) without NVRTC, Error(kBroken) with its messages when the
  // text does not compile.
  GpuProgram(const std::string& text, const std::vector<std::string>& macros, const GpuShape& gpu);
  ~GpuProgram();
  GpuProgram(const GpuProgram&) = delete;
  GpuProgram& operator=(const GpuProgram&) = delete;

  using Kernel = void*;
  // `shared_bytes`: the maximum of dynamic shared memory at launch.
  Kernel Find(const char* name, int shared_bytes = 0) const;
  // Asynchronous. `arguments`: addresses of the kernel's parameters.
  static void Launch(Kernel kernel, const GpuLaunch& launch, std::span<void* const> arguments);

 private:
  void* module_ = nullptr;
};

// A stream that is ordered with the default stream: each waits for earlier work of the other.
class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  void* handle() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

// A sequence of launches, recorded once and repeated as one launch.
class GpuGraph {
 public:
  // Records the launches of `work` on the stream without running them. Throws what `work` throws. This thread
  // must not allocate driver memory meanwhile.
  GpuGraph(const GpuStream& stream, const std::function<void()>& work);
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  void Launch() const;  // on the default stream

 private:
  void* executable_ = nullptr;
};

// Host memory that the device can read and write.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  template <typename T>
  T* host() const {
    return static_cast<T*>(host_);
  }
  uint64_t device() const { return device_; }

 private:
  void* host_ = nullptr;
  uint64_t device_ = 0;
};

// An asynchronous copy on torch's default stream. `from` is pinned and must not change until the copy is
// complete.
void CopyToDevice(void* to, const void* from, size_t bytes);

}  // namespace kevin::local
