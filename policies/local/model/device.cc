#include "policies/local/model/device.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "env/error.h"

namespace kevin::local {
namespace {

// Before the first tensor on a GPU: segments stay as they were made.
void LetSegmentsGrow() {
  if (std::getenv("PYTORCH_ALLOC_CONF") != nullptr || std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr)
    return;
  if (c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments()) return;
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

}  // namespace

void OpenCuda(c10::Device device) {
  if (!device.is_cuda()) return;
  LetSegmentsGrow();
  for (const char* library : {"libc10_cuda.so", "libtorch_cuda.so"}) {
    if (dlopen(library, RTLD_NOW | RTLD_GLOBAL)) continue;
    const char* why = dlerror();
    throw Error(
        ExitCode::kMachine, std::string("this torch cannot use a GPU: ") + (why ? why : library),
        "install torch 2.11 with CUDA (tools/setup.sh does on a machine with a GPU), or use --device cpu");
  }
  try {
    at::globalContext().lazyInitDevice(at::kCUDA);
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    guard.setDevice(device);
  } catch (const c10::Error& error) {
    throw Error(ExitCode::kMachine,
                "torch cannot use this GPU: " + std::string(error.what_without_backtrace()).substr(0, 1000),
                "run `kevin doctor`");
  }
}

void ReturnFreeMemory(c10::Device device) {
  if (device.is_cuda()) at::accelerator::emptyCache();
}

int64_t FreeBytesOf(c10::Device device) {
  if (!device.is_cpu())
    return static_cast<int64_t>(
        at::accelerator::getMemoryInfo(std::max<c10::DeviceIndex>(device.index(), 0)).first);
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kilobytes = 0; file >> name >> kilobytes;) {
    if (name == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return 0;
}

}  // namespace kevin::local
