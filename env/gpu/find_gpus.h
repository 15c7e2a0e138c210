#pragma once
// The GPUs of this machine, found through the driver library alone: no toolkit, no context, no memory. The
// first call may take some tenths of a second with a driver, and takes microseconds without one.

#include <string>
#include <vector>

namespace kevin {

struct GpuFound {
  int index = 0;     // the N of "cuda:N"
  std::string name;  // "NVIDIA H200"; empty: unknown
  int capability_major = 0, capability_minor = 0;
  int compute_mode = 0;    // CUDA's: 0 default, 2 prohibited, 3 exclusive process
  int driver_version = 0;  // newest CUDA version it supports: 13000 is 13.0
  std::string pci_bus{};   // "0000:18:00.0"; empty: unknown
};

// The reason why Kevin cannot use a GPU of this machine, and the remedy; both empty when it can.
struct GpuObstacle {
  std::string reason, fix;
};
GpuObstacle ObstacleTo(const GpuFound& gpu);

// The machine code made for it: "sm_90a". From 9.0 on with the features of this architecture alone (wgmma, setmaxnreg).
std::string ArchitectureOf(const GpuFound& gpu);
// The same as torch names it: "9.0a".
std::string TorchArchitecture(const std::string& architecture);

// In the order of the driver, which CUDA_VISIBLE_DEVICES may change. `why_none` (may be null) is filled when
// there are none: no driver library, the error number and version of the driver, or no device. Never throws.
std::vector<GpuFound> FindGpus(std::string* why_none = nullptr);

}  // namespace kevin
