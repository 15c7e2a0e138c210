#pragma once
// One measurement at a time per device, whichever process asks. A measurement holds the device's lock alone;
// what only loads the machine (compiling, verifying, generating) shares it, so that none of it runs while a
// pair is timed.

#include <filesystem>
#include <string>

namespace kevin {

enum class LockMode { kShared, kAlone };

class DeviceLock {
 public:
  // `device` is "cpu" or a GPU's name. Blocks until the lock is there; *wait_s grows by the time that took.
  // Machine-wide: a file that every user can open. Throws Error(kMachine) when that file cannot be made.
  DeviceLock(const std::string& device, LockMode mode, double* wait_s);
  ~DeviceLock();
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;

  static std::filesystem::path PathFor(const std::string& device);
  // The `device` of a GPU, from what the driver calls its place on the bus ("0000:18:00.0").
  static std::string NameOfGpu(std::string pci_bus);

 private:
  int fd_ = -1;
};

}  // namespace kevin
