#pragma once
// Torch's devices and errors in Kevin's terms.

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "env/error.h"

namespace kevin::local {

// Loads torch's CUDA library, which no program is linked to, and makes `device` the current one of this
// thread. Does nothing for a CPU. Throws Error(kMachine) that names what is missing. Torch takes memory from a GPU in segments
// that grow (expandable_segments), so that what was freed serves tensors of other sizes, unless PYTORCH_ALLOC_CONF or
// PYTORCH_CUDA_ALLOC_CONF is set. Such memory cannot be given to other processes by CUDA's IPC handles; nothing here does.
void OpenCuda(c10::Device device);

// Gives the memory that torch keeps for further tensors back to the GPU; between phases that need blocks of other sizes, or for
// other users of the device. Waits for it. Does nothing for a CPU.
void ReturnFreeMemory(c10::Device device);

// Memory of the device that is free now; of a CPU, main memory available to programs. 0: unknown.
int64_t FreeBytesOf(c10::Device device);

// Runs `work` and turns torch's exceptions into Error(kBroken), without torch's backtrace. `doing`: for the
// message ("loading DIR").
template <typename Work>
auto WithTorchErrors(const std::string& doing, const Work& work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(ExitCode::kBroken, doing + ": the device's memory is full",
                "use fewer sequences or a shorter context, or --quantization int8 or nf4");
  } catch (const c10::Error& error) {
    throw Error(ExitCode::kBroken,
                doing + ": " + std::string(error.what_without_backtrace()).substr(0, 1000));
  }
}

}  // namespace kevin::local
