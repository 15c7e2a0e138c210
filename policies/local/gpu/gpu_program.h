#pragma once
// Kernels of our own on the GPU that torch uses: compiled by NVRTC, launched on torch's default stream (or
// recorded) through the driver. Both libraries are opened at run time. Needs torch's context to be current
// (cuda.h).

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
// Of device `index`. Throws Error(kMachine) where there is no driver.
GpuShape ShapeOfGpu(int index);

// Makes torch's context on that device current in this thread, which makes it the runtime's device, too.
// Costs next to nothing when it is.
void UseGpu(int index);

struct GpuLaunch {
  unsigned grid[3] = {1, 1, 1};
  unsigned threads = 256;
  unsigned shared_bytes = 0;
  bool cooperative = false;  // all blocks run at once
  void* stream = nullptr;    // torch's default stream, or a GpuStream's handle
};

class GpuProgram {
 public:
  // `macros` as "NAME=VALUE". Throws Error(kMachine) where NVRTC is not there, Error(kBroken) with its
  // messages where the text does not compile.
  GpuProgram(const std::string& text, const std::vector<std::string>& macros, const GpuShape& gpu);
  ~GpuProgram();
  GpuProgram(const GpuProgram&) = delete;
  GpuProgram& operator=(const GpuProgram&) = delete;

  using Kernel = void*;
  // `shared_bytes`: the most dynamic shared memory it will be launched with.
  Kernel Find(const char* name, int shared_bytes = 0) const;
  // Returns at once. `arguments` are addresses of the kernel's parameters.
  static void Launch(Kernel kernel, const GpuLaunch& launch, std::span<void* const> arguments);

 private:
  void* module_ = nullptr;
};

// A stream of our own, in order with the default stream: each waits for what was put on the other before.
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

// Launches that were recorded once, repeated at the price of one.
class GpuGraph {
 public:
  // Records what `work` puts on the stream, without running it. Throws what `work` throws. Meanwhile this
  // thread must not ask the driver for memory.
  GpuGraph(const GpuStream& stream, const std::function<void()>& work);
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  void Launch() const;  // on the default stream

 private:
  void* executable_ = nullptr;
};

// Memory that host and device both see.
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

// Puts a copy on torch's default stream; `from` is pinned and stays as it is until the copy is done.
void CopyToDevice(void* to, const void* from, size_t bytes);

}  // namespace kevin::local
