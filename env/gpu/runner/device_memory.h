#pragma once
// Memory on the device. SharedDeviceMemory crosses process boundaries as a file descriptor (the driver's
// virtual memory management); what imports it may be given a read-only mapping, which the hardware enforces.
// All need a current context. Errors are DriverError.

#include <cstddef>

#include "env/gpu/runner/driver.h"
#include "env/process/shared_memory.h"

namespace kevin {

class SharedDeviceMemory {
 public:
  SharedDeviceMemory() = default;
  static SharedDeviceMemory Create(int device, size_t bytes);
  static SharedDeviceMemory Import(int device, int fd, size_t bytes, Access access);
  SharedDeviceMemory(SharedDeviceMemory&& other) noexcept;
  SharedDeviceMemory& operator=(SharedDeviceMemory&& other) noexcept;
  ~SharedDeviceMemory();

  CuDevicePtr data() const { return data_; }
  size_t bytes() const { return bytes_; }  // rounded up to what the device allocates in
  Fd Export() const;

 private:
  void Map(int device, Access access);

  CuAllocation allocation_ = 0;
  CuDevicePtr data_ = 0;
  size_t bytes_ = 0;
};

// Private to this process.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  CuDevicePtr data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  CuDevicePtr data_ = 0;
  size_t bytes_ = 0;
};

}  // namespace kevin
