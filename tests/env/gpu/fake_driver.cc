// A stand-in for libcuda.so.1 with as much of it as looking for GPUs needs. FAKE_DRIVER_INIT is what cuInit
// answers, FAKE_DRIVER_VERSION the CUDA it knows, FAKE_DRIVER_GPUS how many there are. FAKE_DRIVER_NAME,
// FAKE_DRIVER_MODE and FAKE_DRIVER_MAJOR are the first GPU's; the second is in exclusive mode.

#include <cstdio>
#include <cstdlib>

namespace {

int Setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return Setting("FAKE_DRIVER_INIT", 0); }

int cuDriverGetVersion(int* version) {
  *version = Setting("FAKE_DRIVER_VERSION", 13020);
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = Setting("FAKE_DRIVER_GPUS", 2);
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = 40 + index;  // handles are no indices
  return 0;
}

int cuDeviceGetName(char* name, int size, int device) {
  const char* first = std::getenv("FAKE_DRIVER_NAME");
  if (first != nullptr && device == 40) {
    std::snprintf(name, static_cast<size_t>(size), "%s", first);
  } else {
    std::snprintf(name, static_cast<size_t>(size), "Fake %d", device);
  }
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kComputeMode = 20, kMajor = 75, kMinor = 76;
  const bool first = device == 40;
  *value = attribute == kMajor         ? first ? Setting("FAKE_DRIVER_MAJOR", 9) : 9
           : attribute == kMinor       ? 1
           : attribute == kComputeMode ? first ? Setting("FAKE_DRIVER_MODE", 0) : 3
                                       : 0;
  return 0;
}

int cuDeviceGetPCIBusId(char* bus, int size, int device) {
  std::snprintf(bus, static_cast<size_t>(size), "0000:%d:00.0", device);
  return 0;
}

}  // extern "C"
