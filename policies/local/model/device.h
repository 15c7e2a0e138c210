#pragma once
// Torch's CUDA half, which this program is not linked to.

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <string>

#include "env/error.h"

namespace kevin::local {

// Loads it for the process and makes `device` this thread's. Nothing to do for a CPU. Throws Error(kMachine)
// that says what is missing.
void OpenCuda(c10::Device device);

// Torch's exceptions become ours where they would leave the model.

// `doing`: "loading DIR", for the message. The backtrace that torch adds is left off.
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
