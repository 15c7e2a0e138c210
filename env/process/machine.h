#pragma once
// This machine: its processor, its threads, its clock, and one measurement at a time on each of its devices.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace kevin {

// For evaluation keys and reports.
std::string CpuModel();  // "AMD EPYC 9755"
std::string
CpuFeatures();  // the instruction sets that change the meaning of -march=native: "avx2 avx512f ..."
std::string KernelRelease();  // "6.18.44"
int UsableCpus();             // the CPUs in this process's affinity mask
std::string HostName();       // "host" where it has none

// What stands in /proc/PID/stat behind the name: the state ("R"), the parent's id, and so on (proc(5), from the third field
// on). Empty: there is no such process, or /proc hides it.
std::vector<std::string> ProcessStat(int pid);

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Calls work(begin, end) for consecutive parts of [0, count), one part a thread, split at multiples of
// `grain`. For work of the trusted side (drawing, poisoning, comparing). The threads end with the call, so
// that none runs during a timed window. `work` must not throw.
template <typename Work>
void ParallelFor(int64_t count, int64_t grain, int threads, const Work& work) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(threads, grains));
  const auto bound = [&](int64_t part) { return std::min(count, grains * part / parts * grain); };
  std::vector<std::jthread> others;
  for (int64_t part = 1; part < parts; ++part) {
    others.emplace_back([&work, begin = bound(part), end = bound(part + 1)] { work(begin, end); });
  }
  work(0, bound(1));
}

// A measurement holds the lock of its device exclusively. Work that only loads the machine (compiling,
// verifying, generating) holds it shared, so that none of it runs while a pair is timed.
enum class LockMode { kShared, kExclusive };

// The lock of one device: files in DeviceLock::Directory(), which the lock's users share and no one else can
// open. It is fair: a thread that waits holds the device's gate, and later comers queue there, so that overlapping
// compiles cannot keep a measurement waiting. A thread that holds a lock must not ask for the same device.
class DeviceLock {
 public:
  // `device` is "cpu" or NameOfGpu. Blocks until the lock is acquired; adds the waiting time to *wait_s (may
  // be null). After notice_after_s, and then every five minutes, names the holder on stderr. Throws
  // Error(kMachine) when the files cannot be made, and Error(kInterrupted) within a tenth of a second when
  // *stop is set while it waits; `stop` may be null.
  DeviceLock(const std::string& device, LockMode mode, double* wait_s,
             const std::atomic<bool>* stop = nullptr);
  ~DeviceLock();
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;

  // $KEVIN_LOCK_DIRECTORY, which users who share a device agree on: a folder of their group that others
  // cannot write to. Else a folder of this user alone: /tmp/kevin-locks-UID, or, where another user has taken
  // that name, one in the user's cache. Made if needed. Throws Error(kMachine).
  static std::filesystem::path Directory();
  static std::filesystem::path PathFor(const std::string& device);
  // From the driver's bus id of the GPU ("0000:18:00.0").
  static std::string NameOfGpu(std::string pci_bus);
  // "process 17 (kevin bench a.cpp) of user ann", several separated by "; ". From /proc/locks; empty when
  // nobody holds the lock or the kernel does not say.
  static std::string HoldersOf(const std::string& device);

  static inline double notice_after_s = 10;  // tests shorten it

 private:
  struct Queue;  // the open files on the way to the lock
  int fd_ = -1;
};

}  // namespace kevin
