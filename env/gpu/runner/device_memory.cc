#include "env/gpu/runner/device_memory.h"

#include <utility>

namespace kevin {
namespace {

constexpr int kPosixDescriptor = 1;
constexpr int kReadOnly = 1, kReadWrite = 3;

CuMemAllocationProp PropertiesOn(int device) {
  CuMemAllocationProp properties;
  properties.location.id = device;
  return properties;
}

size_t RoundUp(int device, size_t bytes) {
  const CuMemAllocationProp properties = PropertiesOn(device);
  size_t granularity = 0;
  KEVIN_CU(MemGetAllocationGranularity, &granularity, &properties, 0);
  return (bytes + granularity - 1) / granularity * granularity;
}

}  // namespace

SharedDeviceMemory SharedDeviceMemory::Create(int device, size_t bytes) {
  SharedDeviceMemory memory;
  memory.bytes_ = RoundUp(device, bytes);
  const CuMemAllocationProp properties = PropertiesOn(device);
  KEVIN_CU(MemCreate, &memory.allocation_, memory.bytes_, &properties, 0);
  memory.Map(device, Access::kReadWrite);
  return memory;
}

SharedDeviceMemory SharedDeviceMemory::Import(int device, int fd, size_t bytes, Access access) {
  SharedDeviceMemory memory;
  memory.bytes_ = RoundUp(device, bytes);
  KEVIN_CU(MemImportFromShareableHandle, &memory.allocation_,
           reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kPosixDescriptor);
  memory.Map(device, access);
  return memory;
}

void SharedDeviceMemory::Map(int device, Access access) {
  KEVIN_CU(MemAddressReserve, &data_, bytes_, 0, 0, 0);
  KEVIN_CU(MemMap, data_, bytes_, 0, allocation_, 0);
  CuMemAccess rights;
  rights.location.id = device;
  rights.flags = access == Access::kReadOnly ? kReadOnly : kReadWrite;
  KEVIN_CU(MemSetAccess, data_, bytes_, &rights, 1);
}

Fd SharedDeviceMemory::Export() const {
  int fd = -1;
  KEVIN_CU(MemExportToShareableHandle, &fd, allocation_, kPosixDescriptor, 0);
  return Fd(fd);
}

SharedDeviceMemory::SharedDeviceMemory(SharedDeviceMemory&& other) noexcept { *this = std::move(other); }

SharedDeviceMemory& SharedDeviceMemory::operator=(SharedDeviceMemory&& other) noexcept {
  std::swap(allocation_, other.allocation_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedDeviceMemory::~SharedDeviceMemory() {
  if (data_) {
    Cu().MemUnmap(data_, bytes_);
    Cu().MemAddressFree(data_, bytes_);
  }
  if (allocation_) Cu().MemRelease(allocation_);
}

DeviceBuffer::DeviceBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) KEVIN_CU(MemAlloc, &data_, bytes);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_) Cu().MemFree(data_);
}

}  // namespace kevin
