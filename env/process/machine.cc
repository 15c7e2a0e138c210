#include "env/process/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <climits>
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

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "host";
}

// A name may have any characters.
std::vector<std::string> ProcessStat(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> fields;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return fields;
  std::istringstream behind(text.substr(name_end + 1));
  for (std::string field; behind >> field;) fields.push_back(field);
  return fields;
}

}  // namespace kevin
