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

// The lock of one device for all processes of the machine: flock on a file that every user can open.
class DeviceLock {
 public:
  // `device` is "cpu" or NameOfGpu. Blocks until the lock is acquired; adds the waiting time to *wait_s (may
  // be null). Throws Error(kMachine) when the file cannot be made, and Error(kInterrupted) within a tenth of a
  // second when *stop is set while it waits; `stop` may be null.
  DeviceLock(const std::string& device, LockMode mode, double* wait_s,
             const std::atomic<bool>* stop = nullptr);
  ~DeviceLock();
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;

  static std::filesystem::path PathFor(const std::string& device);
  // From the driver's bus id of the GPU ("0000:18:00.0").
  static std::string NameOfGpu(std::string pci_bus);

 private:
  void Await(int operation, const std::atomic<bool>& stop);

  int fd_ = -1;
};

}  // namespace kevin
