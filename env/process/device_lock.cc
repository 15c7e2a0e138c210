#include "env/process/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "env/error.h"

namespace kevin {

std::filesystem::path DeviceLock::PathFor(const std::string& device) {
  return "/tmp/kevin-" + device + ".lock";
}

std::string DeviceLock::NameOfGpu(std::string pci_bus) {
  std::replace(pci_bus.begin(), pci_bus.end(), ':', '-');
  return "gpu-" + pci_bus;
}

DeviceLock::DeviceLock(const std::string& device, LockMode mode, double* wait_s) {
  const std::filesystem::path path = PathFor(device);
  // Another user's file in a sticky folder may be opened but not created over: try without O_CREAT first.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd_ < 0) {
    fd_ = open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ >= 0) fchmod(fd_, 0666);
  }
  if (fd_ < 0) {
    throw Error(ExitCode::kMachine, "measurement lock " + path.string() + ": " + std::strerror(errno),
                "make /tmp writable; without the lock two measurements would disturb each other");
  }
  const auto start = std::chrono::steady_clock::now();
  while (flock(fd_, mode == LockMode::kAlone ? LOCK_EX : LOCK_SH) != 0 && errno == EINTR) {
  }
  if (wait_s) *wait_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace kevin
