#include "env/gpu/find_gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cctype>

namespace kevin {
namespace {

// The driver's C interface; every function returns 0 when it succeeds.
constexpr int kLeastDriver = 13000;   // what our compiler's machine code needs
constexpr int kLeastCapability = 80;  // virtual memory, async copies: the trusted kernels need them
constexpr int kComputeMode = 20, kCapabilityMajor = 75, kCapabilityMinor = 76;

struct GpuLister {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int* version) = nullptr;
  int (*count)(int* count) = nullptr;
  int (*device)(int* device, int index) = nullptr;
  int (*name)(char* name, int size, int device) = nullptr;
  int (*attribute)(int* value, int attribute, int device) = nullptr;
  int (*pci_bus)(char* bus, int size, int device) = nullptr;
};

template <class Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The library stays open: a driver cannot be unloaded and loaded again.
std::string LoadDriver(GpuLister* driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "no NVIDIA driver (libcuda.so.1 was not found)";
  const bool whole =
      Find(library, "cuInit", &driver->init) && Find(library, "cuDriverGetVersion", &driver->version) &&
      Find(library, "cuDeviceGetCount", &driver->count) && Find(library, "cuDeviceGet", &driver->device) &&
      Find(library, "cuDeviceGetName", &driver->name) &&
      Find(library, "cuDeviceGetAttribute", &driver->attribute) &&
      Find(library, "cuDeviceGetPCIBusId", &driver->pci_bus);
  return whole ? "" : "libcuda.so.1 is not an NVIDIA driver: functions are missing";
}

int Attribute(const GpuLister& driver, int attribute, int device) {
  int value = 0;
  return driver.attribute(&value, attribute, device) == 0 ? value : 0;
}

GpuFound DescribeGpu(const GpuLister& driver, int index, int version) {
  GpuFound gpu;
  gpu.index = index;
  gpu.driver_version = version;
  int device = 0;
  if (driver.device(&device, index) != 0) return gpu;
  std::array<char, 256> name{};
  if (driver.name(name.data(), static_cast<int>(name.size()) - 1, device) == 0) gpu.name = name.data();
  std::array<char, 32> bus{};
  if (driver.pci_bus(bus.data(), static_cast<int>(bus.size()) - 1, device) == 0) gpu.pci_bus = bus.data();
  gpu.capability_major = Attribute(driver, kCapabilityMajor, device);
  gpu.capability_minor = Attribute(driver, kCapabilityMinor, device);
  gpu.compute_mode = Attribute(driver, kComputeMode, device);
  return gpu;
}

std::vector<GpuFound> Ask(std::string* why_none) {
  GpuLister driver;
  *why_none = LoadDriver(&driver);
  if (!why_none->empty()) return {};
  int version = 0, count = 0;
  driver.version(&version);  // works without a device
  const std::string release = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  if (const int error = driver.init(0); error != 0) {
    *why_none = fmt::format("the NVIDIA driver ({}) does not start: cuInit returns {}", release, error);
    return {};
  }
  if (const int error = driver.count(&count); error != 0 || count == 0) {
    *why_none = fmt::format(
        "the NVIDIA driver ({}) shows no device (CUDA_VISIBLE_DEVICES hides them, or MIG mode is on without "
        "an "
        "instance)",
        release);
    return {};
  }
  std::vector<GpuFound> gpus;
  for (int index = 0; index < count; ++index) gpus.push_back(DescribeGpu(driver, index, version));
  return gpus;
}

}  // namespace

GpuObstacle ObstacleTo(const GpuFound& gpu) {
  const std::string name = fmt::format("cuda:{} ({})", gpu.index, gpu.name);
  // The reference and the candidate each have a process on the device, both at the same time.
  if (gpu.compute_mode != 0) {
    return {fmt::format("{} is in {} compute mode; Kevin needs two processes on it", name,
                        gpu.compute_mode == 2 ? "prohibited" : "exclusive"),
            fmt::format("set it to the default mode (as root: nvidia-smi -i {} -c DEFAULT)", gpu.index)};
  }
  if (gpu.name.find(" MIG ") != std::string::npos) {
    return {name + " is a MIG instance; the load of other instances changes its speed and so every time",
            "disable MIG (as root: nvidia-smi -mig 0) or use an undivided GPU"};
  }
  if (gpu.driver_version < kLeastDriver) {
    return {fmt::format("{}: its driver supports CUDA {}.{}; Kevin's compiler needs 13.0", name,
                        gpu.driver_version / 1000, gpu.driver_version % 1000 / 10),
            "install NVIDIA's driver 580 or newer"};
  }
  if (gpu.capability_major * 10 + gpu.capability_minor < kLeastCapability) {
    return {fmt::format("{} has compute capability {}.{}; Kevin needs 8.0 or more", name,
                        gpu.capability_major, gpu.capability_minor),
            "use a newer GPU"};
  }
  return {};
}

std::string ArchitectureOf(const GpuFound& gpu) {
  const int capability = gpu.capability_major * 10 + gpu.capability_minor;
  return fmt::format("sm_{}{}", capability, capability >= 90 ? "a" : "");
}

std::string TorchArchitecture(const std::string& architecture) {
  std::string digits = architecture.substr(architecture.find('_') + 1), suffix;
  while (!digits.empty() && !std::isdigit(static_cast<unsigned char>(digits.back()))) {
    suffix.insert(suffix.begin(), digits.back());
    digits.pop_back();
  }
  return digits.empty() ? "" : digits.substr(0, digits.size() - 1) + "." + digits.back() + suffix;
}

std::vector<GpuFound> FindGpus(std::string* why_none) {
  std::string why;
  std::vector<GpuFound> gpus = Ask(&why);
  if (why_none != nullptr) *why_none = why;
  return gpus;
}

}  // namespace kevin
