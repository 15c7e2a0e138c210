#include "env/process/machine.h"

#include <sched.h>
#include <sys/utsname.h>

#include <fstream>
#include <set>
#include <sstream>

namespace kevin {
namespace {

std::string CpuInfo(const std::string& key) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

std::string CpuModel() { return CpuInfo("model name"); }

std::string CpuFeatures() {
  static const std::set<std::string> kTelling = {
      "sse4_2",   "avx",         "avx2",        "fma",         "avx512f",  "avx512bw", "avx512vl",
      "avx512dq", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_tile", "amx_bf16"};
  std::istringstream flags(CpuInfo("flags"));
  std::string features;
  for (std::string flag; flags >> flag;) {
    if (kTelling.count(flag)) features += (features.empty() ? "" : " ") + flag;
  }
  return features;
}

std::string KernelRelease() {
  utsname name{};
  uname(&name);
  return name.release;
}

int UsableCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

}  // namespace kevin
