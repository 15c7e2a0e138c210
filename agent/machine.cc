#include "agent/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "env/gpu/find_gpus.h"
#include "env/process/spawn.h"

namespace kevin {
namespace fs = std::filesystem;
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> Caches() {
  std::vector<std::string> caches;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::string level = FirstLine(folder + "level"), type = FirstLine(folder + "type");
    if (level.empty() || type == "Instruction") continue;
    caches.push_back(fmt::format("L{}{} {}", level, type == "Data" ? "d" : "", FirstLine(folder + "size")));
  }
  return caches;
}

}  // namespace

std::string ShellWord(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=+,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

MachineFacts ReadMachine() {
  MachineFacts facts;
  facts.cpu = CpuModel();
  facts.cores = UsableCpus();
  facts.instruction_sets = CpuFeatures();
  facts.caches = Caches();
  facts.memory_mb = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE) / (1 << 20);
  facts.kernel = KernelRelease();
  return facts;
}

int64_t LargestCacheBytes(const std::vector<std::string>& caches) {
  int64_t most = 0;
  for (const std::string& cache : caches) {
    const size_t size = cache.rfind(' ');
    if (size == std::string::npos) continue;
    const int shift = cache.back() == 'K' ? 10 : cache.back() == 'M' ? 20 : cache.back() == 'G' ? 30 : 0;
    most = std::max<int64_t>(most, std::strtoll(cache.c_str() + size, nullptr, 10) << shift);
  }
  return most;
}

std::string MachineLine(const MachineFacts& facts) {
  std::string line = fmt::format("{}, {} core{}", facts.cpu, facts.cores, facts.cores == 1 ? "" : "s");
  if (!facts.instruction_sets.empty()) line += ", " + facts.instruction_sets;
  if (!facts.caches.empty()) line += fmt::format(", {}", fmt::join(facts.caches, ", "));
  if (facts.memory_mb > 0) line += fmt::format(", {} GB memory", (facts.memory_mb + 512) / 1024);
  return line;
}

std::string MachineJson(const MachineFacts& facts) {
  const nlohmann::json json = {
      {"cpu", facts.cpu},       {"cores", facts.cores},         {"isa", facts.instruction_sets},
      {"caches", facts.caches}, {"memory_mb", facts.memory_mb}, {"kernel", facts.kernel}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

fs::path CacheDirectory() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
    return fs::path(xdg) / "kevin";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fs::path(home) / ".cache/kevin";
  return fs::temp_directory_path() / "kevin-cache";
}

std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) line += (line.empty() ? "" : " ") + ShellWord(word);
  return line;
}

std::string LockNameOf(const std::string& device) {
  if (device == "cpu") return "cpu";
  static const std::vector<GpuFound> kGpus = FindGpus();
  if (device == "cuda") return LockNameOf("cuda:0");
  if (!device.starts_with("cuda:")) return kGpus.empty() ? "cpu" : LockNameOf("cuda:0");
  for (const GpuFound& gpu : kGpus) {
    if (device == fmt::format("cuda:{}", gpu.index) && !gpu.pci_bus.empty())
      return DeviceLock::NameOfGpu(gpu.pci_bus);
  }
  return "gpu-cuda-" + device.substr(5);
}

namespace {

std::set<std::string> LockNamesOf(const std::vector<std::string>& devices) {
  std::set<std::string> names;
  for (const std::string& device : devices) names.insert(LockNameOf(device));
  return names;
}

}  // namespace

SharedDevices::SharedDevices(const std::vector<std::string>& devices)
    : SharedDevices(LockNamesOf(devices), nullptr) {}

SharedDevices::SharedDevices(const std::set<std::string>& locks, const std::atomic<bool>* stop) {
  for (const std::string& name : locks) locks_.emplace_back(name, LockMode::kShared, nullptr, stop);
}

EnvironmentOptions EnvironmentOptionsFor(int threads, const std::string& isolation) {
  EnvironmentOptions options;
  options.program_directory = ProgramDirectory();
  options.cache_directory = CacheDirectory();
  options.threads = threads;
  options.reduced_isolation = isolation == "reduced";
  return options;
}

}  // namespace kevin
