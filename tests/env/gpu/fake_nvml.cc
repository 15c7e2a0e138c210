// A stand-in for libnvidia-ml.so.1 with as much of it as looking for other processes needs. FAKE_NVML_PROCESSES
// are the ids with a context, "12 34"; FAKE_NVML_COMPUTED the samples, "12:50 34:0" with the percent, all of now,
// or "none" where the driver has no samples, "unsupported" where it never has. FAKE_NVML_INIT is what nvmlInit
// answers.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

std::string Setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Process {
  unsigned id;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned id;
  unsigned long long time_us;
  unsigned multiprocessors, memory, encoder, decoder;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::atoi(Setting("FAKE_NVML_INIT").c_str()); }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  static int one;
  *device = &one;
  return std::strcmp(bus, "0000:40:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void* processes) {
  std::istringstream ids(Setting("FAKE_NVML_PROCESSES"));
  unsigned found = 0;
  const unsigned room = *count;
  for (unsigned id = 0; ids >> id; ++found) {
    if (found < room) static_cast<Process*>(processes)[found] = {id, 0, 0, 0};
  }
  *count = found;
  return found > room ? 7 : 0;
}

int nvmlDeviceGetProcessUtilization(void*, void* samples, unsigned* count, unsigned long long) {
  const std::string setting = Setting("FAKE_NVML_COMPUTED");
  if (setting == "unsupported") return 3;
  if (setting.empty() || setting == "none") return 6;
  const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  std::istringstream pairs(setting);
  unsigned found = 0, id = 0, percent = 0;
  for (char colon = 0; pairs >> id >> colon >> percent && found < *count; ++found) {
    static_cast<Utilization*>(samples)[found] = {id, static_cast<unsigned long long>(now_us), percent, 0, 0,
                                                 0};
  }
  *count = found;
  return 0;
}

}  // extern "C"
