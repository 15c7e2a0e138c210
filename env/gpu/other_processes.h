#pragma once
// Other processes on one GPU, as the driver's management library (NVML, found at run time) reports them. Processes
// that are Kevin's own, of this program or of another one, do not count: they take the lock of the device.
//
// How processes are recognised: NVML gives ids in the caller's pid namespace. A process of another container
// appears with the id 0, with an id that does not exist here, or not at all; the last cannot be found out. Where
// not even this process is in the list, ids are not those of this namespace, and only numbers can be compared:
// more processes than there are of our own are others. Our own are then `ours`, the other GPU evaluators that the
// same `kevin` has started for this device, and what those have started. Errors of NVML, and its absence, count as
// "nobody".

#include <cstdint>
#include <string>
#include <vector>

namespace kevin {

class OtherProcesses {
 public:
  // `pci_bus` as in GpuFound.
  explicit OtherProcesses(const std::string& pci_bus);

  // Those that have a context on the GPU: "python3 (process 1234)". `ours`: ids of this process and of the
  // runners. Takes about a millisecond.
  std::vector<std::string> Present(const std::vector<int>& ours) const;
  // Those of the present ones that computed after `since_us`, by the driver's samples, which come a few times a
  // second: waits up to a second for one that is newer than the call. Where the driver has no samples, the
  // present ones.
  std::vector<std::string> Computed(const std::vector<int>& ours, uint64_t since_us) const;

  // The clock of the samples.
  static uint64_t NowUs();

 private:
  struct Sample {
    int id = 0;
    uint64_t time_us = 0;
  };
  std::vector<int> Ids() const;
  bool Samples(uint64_t since_us, std::vector<Sample>* samples) const;

  void* device_ = nullptr;  // null: NVML is not usable
  int (*processes_)(void*, unsigned*, void*) = nullptr;
  int (*utilization_)(void*, void*, unsigned*, unsigned long long) = nullptr;
};

}  // namespace kevin
