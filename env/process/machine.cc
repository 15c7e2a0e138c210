#include "env/process/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "env/error.h"

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

std::filesystem::path DeviceLock::PathFor(const std::string& device) {
  return "/tmp/kevin-" + device + ".lock";
}

std::string DeviceLock::NameOfGpu(std::string pci_bus) {
  std::replace(pci_bus.begin(), pci_bus.end(), ':', '-');
  return "gpu-" + pci_bus;
}

namespace {

void LockBlocking(int fd, int operation) {
  while (flock(fd, operation) != 0 && errno == EINTR) {
  }
}

// The state that a waiting thread shares with the caller that may give up.
struct Waiter {
  std::mutex mutex;
  std::condition_variable changed;
  bool has_lock = false, is_abandoned = false;
};

}  // namespace

// A thread of its own blocks in flock: polling with LOCK_NB would lose the lock to every process that blocks.
// Where the caller gives up, that thread closes the file as soon as it has the lock.
void DeviceLock::Await(int operation, const std::atomic<bool>& stop) {
  const auto waiter = std::make_shared<Waiter>();
  std::thread([waiter, operation, fd = fd_] {
    LockBlocking(fd, operation);
    const std::lock_guard lock(waiter->mutex);
    waiter->has_lock = true;
    if (waiter->is_abandoned) close(fd);
    waiter->changed.notify_all();
  }).detach();
  std::unique_lock lock(waiter->mutex);
  while (!waiter->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return waiter->has_lock; })) {
    if (!stop) continue;
    waiter->is_abandoned = true;
    fd_ = -1;
    throw Error(ExitCode::kInterrupted, "interrupted while another process was measuring");
  }
}

DeviceLock::DeviceLock(const std::string& device, LockMode mode, double* wait_s,
                       const std::atomic<bool>* stop) {
  const std::filesystem::path path = PathFor(device);
  // O_CREAT fails on another user's file in a sticky folder: first open without it.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd_ < 0) {
    fd_ = open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ >= 0) fchmod(fd_, 0666);
  }
  if (fd_ < 0) {
    throw Error(ExitCode::kMachine, "measurement lock " + path.string() + ": " + std::strerror(errno),
                "make /tmp writable; without the lock two measurements would run at once");
  }
  const auto start = std::chrono::steady_clock::now();
  const int operation = mode == LockMode::kExclusive ? LOCK_EX : LOCK_SH;
  if (stop == nullptr) {
    LockBlocking(fd_, operation);
  } else if (flock(fd_, operation | LOCK_NB) != 0) {
    Await(operation, *stop);
  }
  if (wait_s) *wait_s += SecondsSince(start);
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace kevin
