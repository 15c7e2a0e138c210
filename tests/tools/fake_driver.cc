// A stand-in for libcuda.so.1 with as much of it as looking for GPUs needs. FAKE_DRIVER_INIT is what cuInit
// answers, FAKE_DRIVER_GPUS how many there are; the second is in exclusive mode.

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
  *version = 13020;
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
  std::snprintf(name, static_cast<size_t>(size), "Fake %d", device);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 1 : attribute == 20 && device == 41 ? 3 : 0;
  return 0;
}

int cuDeviceGetPCIBusId(char* bus, int size, int device) {
  std::snprintf(bus, static_cast<size_t>(size), "0000:%d:00.0", device);
  return 0;
}

}  // extern "C"
