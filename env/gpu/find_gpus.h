#pragma once
// Which GPUs this machine has, asked of the driver library alone: no toolkit, no context, no memory. The
// first call may take some tenths of a second where there is a driver; without one it takes microseconds.

#include <string>
#include <vector>

namespace kevin {

struct GpuFound {
  int index = 0;     // the N of "cuda:N"
  std::string name;  // "NVIDIA H200"; empty if the driver does not say
  int capability_major = 0, capability_minor = 0;
  int compute_mode = 0;    // CUDA's: 0 default, 2 prohibited, 3 exclusive process
  int driver_version = 0;  // the CUDA version that the driver knows: 13000 is 13.0
  std::string pci_bus{};   // "0000:18:00.0"; empty if the driver does not say
};

// Why Kevin cannot use a GPU that is there, and what to do about it; both empty when it can.
struct GpuObstacle {
  std::string reason, fix;
};
GpuObstacle ObstacleTo(const GpuFound& gpu);

// In the driver's order, which CUDA_VISIBLE_DEVICES may change. `why_none` (may be null) is filled when there
// are none: no driver library, the driver's error number and version, or no device. Never throws.
std::vector<GpuFound> FindGpus(std::string* why_none = nullptr);

}  // namespace kevin
