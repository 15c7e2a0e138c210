#include "env/gpu/other_processes.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "env/process/machine.h"

namespace kevin {
namespace {

// NVML's ABI.
struct NvmlProcess {
  unsigned id;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct NvmlUtilization {
  unsigned id;
  unsigned long long time_us;
  unsigned multiprocessors, memory, encoder, decoder;  // percent
};
static_assert(sizeof(NvmlProcess) == 24 && sizeof(NvmlUtilization) == 32);
constexpr int kNvmlNotFound = 6, kNvmlTooSmall = 7;

constexpr auto kPatience = std::chrono::seconds(1);
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr unsigned kMostProcesses = 512, kMostSamples = 4096;

// The program's name; empty: no process of this id is visible here.
std::string ProgramOf(int id) {
  std::ifstream comm("/proc/" + std::to_string(id) + "/comm");
  std::string name;
  std::getline(comm, name);
  return name;
}

bool Contains(const std::vector<int>& ids, int id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool IsOther(const std::vector<int>& ours, int id) {
  return !Contains(ours, id) && !ProgramOf(id).starts_with("kevin");
}

std::string Described(int id) {
  std::string name = ProgramOf(id);
  if (name.empty()) return "a process of another container or user";
  // Anything may stand in the name.
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';
  }
  return fmt::format("{} (process {})", name, id);
}

std::vector<std::string> Described(const std::set<int>& ids) {
  std::set<std::string> names;
  for (const int id : ids) names.insert(Described(id));
  return {names.begin(), names.end()};
}

// The device of a GPU evaluator, `kevin-evaluator serve-gpu DEVICE ...`; empty: it is none.
std::string DeviceOfEvaluator(int id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/cmdline");
  for (std::string argument; std::getline(file, argument, '\0');) {
    if (argument == "serve-gpu" && std::getline(file, argument, '\0')) return argument;
  }
  return "";
}

int ParentOf(int id) {
  const std::vector<std::string> stat = ProcessStat(id);
  return stat.size() > 1 ? std::atoi(stat[1].c_str()) : 0;
}

// With a context on this process's device: evaluators of the same parent, their runners and their Python workers. The
// first Python of an evaluator makes its workers and has no context.
size_t CountSiblings(const std::vector<int>& ours) {
  std::multimap<int, int> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const int id = std::atoi(entry.path().filename().c_str());
    if (id > 0) children.emplace(ParentOf(id), id);
  }
  const std::string device = DeviceOfEvaluator(getpid());
  size_t count = 0;
  const auto [first, last] = children.equal_range(getppid());
  for (auto sibling = first; sibling != last; ++sibling) {
    const std::string theirs = DeviceOfEvaluator(sibling->second);
    if (Contains(ours, sibling->second) || theirs.empty() || (!device.empty() && theirs != device)) continue;
    size_t runners = 0, pythons = 0;
    const auto [begin, end] = children.equal_range(sibling->second);
    for (auto child = begin; child != end; ++child)
      ++(ProgramOf(child->second).starts_with("kevin") ? runners : pythons);
    count += 1 + runners + (pythons > 1 ? pythons - 1 : 0);
  }
  return count;
}

// Where only numbers can be compared.
std::set<int> UnnamedOthers(size_t processes, const std::vector<int>& ours) {
  const bool has_others = processes > ours.size() && processes > ours.size() + CountSiblings(ours);
  return has_others ? std::set<int>{0} : std::set<int>{};
}

// Of the ids with something on the device. `translated`: they are ids of this namespace.
std::set<int> OthersAmong(const std::set<int>& ids, const std::vector<int>& ours, bool translated) {
  if (!translated) return UnnamedOthers(ids.size(), ours);
  std::set<int> others;
  for (const int id : ids) {
    if (IsOther(ours, id)) others.insert(id);
  }
  return others;
}

bool AreTranslated(const std::vector<int>& ids, const std::vector<int>& ours) {
  return std::any_of(ours.begin(), ours.end(), [&](int id) { return Contains(ids, id); });
}

}  // namespace

OtherProcesses::OtherProcesses(const std::string& pci_bus) {
  // Stays open, as the driver's library does.
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    return *function != nullptr;
  };
  int (*init)() = nullptr;
  int (*by_bus)(const char*, void**) = nullptr;
  void* device = nullptr;
  if (!find("nvmlInit_v2", &init) || !find("nvmlDeviceGetHandleByPciBusId_v2", &by_bus) ||
      !find("nvmlDeviceGetComputeRunningProcesses_v3", &processes_) || init() != 0 ||
      by_bus(pci_bus.c_str(), &device) != 0)
    return;
  find("nvmlDeviceGetProcessUtilization", &utilization_);
  device_ = device;
}

uint64_t OtherProcesses::NowUs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

std::vector<int> OtherProcesses::Ids() const {
  if (!device_) return {};
  unsigned count = 64;
  std::vector<NvmlProcess> processes(count);
  int status = processes_(device_, &count, processes.data());
  if (status == kNvmlTooSmall) {
    count = kMostProcesses;
    processes.resize(count);
    status = processes_(device_, &count, processes.data());
  }
  std::vector<int> ids;
  for (unsigned i = 0; status == 0 && i < std::min<size_t>(count, processes.size()); ++i)
    ids.push_back(static_cast<int>(processes[i].id));
  return ids;
}

// Samples of computing processes. False: the driver has none to give.
bool OtherProcesses::Samples(uint64_t since_us, std::vector<Sample>* samples) const {
  if (!utilization_) return false;
  samples->clear();
  unsigned count = kMostSamples;
  std::vector<NvmlUtilization> read(count);
  const int status = utilization_(device_, read.data(), &count, since_us);
  if (status != 0) return status == kNvmlNotFound;
  for (unsigned i = 0; i < std::min<size_t>(count, read.size()); ++i) {
    if (read[i].time_us > since_us && read[i].multiprocessors > 0)
      samples->push_back({static_cast<int>(read[i].id), read[i].time_us});
  }
  return true;
}

std::vector<std::string> OtherProcesses::Present(const std::vector<int>& ours) const {
  const std::vector<int> ids = Ids();
  if (!AreTranslated(ids, ours))
    return Described(UnnamedOthers(ids.size(), ours));  // 0 may stand there twice
  return Described(OthersAmong({ids.begin(), ids.end()}, ours, true));
}

std::vector<std::string> OtherProcesses::Computed(const std::vector<int>& ours, uint64_t since_us) const {
  const std::vector<std::string> present = Present(ours);
  if (present.empty()) return {};
  const bool translated = AreTranslated(Ids(), ours);
  const uint64_t now_us = NowUs();
  const auto start = std::chrono::steady_clock::now();
  std::vector<Sample> samples;
  for (;;) {
    if (!Samples(since_us, &samples)) return present;
    const bool fresh = std::any_of(samples.begin(), samples.end(),
                                   [&](const Sample& sample) { return sample.time_us >= now_us; });
    if (fresh || std::chrono::steady_clock::now() - start > kPatience) break;
    std::this_thread::sleep_for(kLook);
  }
  // This program computed too: a driver that saw nobody does not look.
  if (samples.empty()) return present;
  std::set<int> ids;
  for (const Sample& sample : samples) ids.insert(sample.id);
  return Described(OthersAmong(ids, ours, translated));
}

}  // namespace kevin
