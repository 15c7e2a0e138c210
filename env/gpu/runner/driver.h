#pragma once
// The part of the CUDA driver's C interface that Kevin uses, found at run time: one build serves machines
// with and without a GPU, and needs no CUDA header. Types follow the ABI of the driver (CUDA 12 and 13).

#include <cstddef>
#include <cstdint>
#include <string>

namespace kevin {

using CuDevicePtr = unsigned long long;
using CuHandle = void*;  // of contexts, modules, functions, streams and events
using CuAllocation = unsigned long long;

// A failed driver call. The caller decides whether the candidate caused it.
class DriverError {
 public:
  DriverError(int code, std::string text) : code_(code), text_(std::move(text)) {}
  int code() const { return code_; }                 // CUresult
  const std::string& text() const { return text_; }  // "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (...)"
  // No further call can succeed in this process (illegal access, failed launch, ...).
  bool fatal() const;
  bool out_of_memory() const;

 private:
  int code_;
  std::string text_;
};

struct CuMemLocation {
  int type = 1;  // a device
  int id = 0;
};
struct CuMemAllocationProp {
  int type = 1;          // pinned
  int handle_types = 1;  // POSIX file descriptor
  CuMemLocation location;
  void* windows_metadata = nullptr;
  struct {
    unsigned char compression = 0, rdma = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};
struct CuMemAccess {
  CuMemLocation location;
  int flags = 3;  // 1: read, 3: read and write
};
struct CuClusterDimension {
  unsigned x, y, z;
};
struct CuLaunchAttribute {
  int id = 0;
  char padding[4] = {};
  union {
    char bytes[64] = {};
    int value;
    CuClusterDimension cluster;
  };
};
struct CuLaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  CuHandle stream = nullptr;
  CuLaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
struct alignas(64) CuTensorMap {
  uint64_t opaque[16];
};

enum CuDeviceAttribute {
  kCuMultiprocessors = 16,
  kCuClockKhz = 13,
  kCuL2Bytes = 38,
  kCuThreadsPerMultiprocessor = 39,
  kCuComputeMode = 20,
  kCuMajor = 75,
  kCuMinor = 76,
  kCuSharedBytesPerMultiprocessor = 81,
  kCuRegistersPerMultiprocessor = 82,
  kCuSharedBytesPerBlockOptin = 97,
  kCuBlocksPerMultiprocessor = 106,
  kCuReservedSharedBytesPerBlock = 111
};
enum CuFunctionAttribute { kCuMaxDynamicSharedBytes = 8, kCuNonPortableClusterSize = 14 };
inline constexpr int kCuLaunchCooperative = 2, kCuLaunchCluster = 4, kCuLaunchProgrammatic = 6;

// The functions of the driver, by their names without `cu`. One per process; LoadDriver() first. Every call
// returns CUresult: make calls by KEVIN_CU, which throws DriverError.
struct Driver {
  int (*Init)(unsigned);
  int (*DriverGetVersion)(int*);
  int (*DeviceGetCount)(int*);
  int (*DeviceGetName)(char*, int, int);
  int (*DeviceGetPCIBusId)(char*, int, int);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*DevicePrimaryCtxRetain)(CuHandle*, int);
  int (*DevicePrimaryCtxSetFlags)(int, unsigned);
  int (*CtxSetCurrent)(CuHandle);
  int (*CtxSynchronize)();
  int (*MemGetInfo)(size_t*, size_t*);
  int (*MemAlloc)(CuDevicePtr*, size_t);
  int (*MemFree)(CuDevicePtr);
  int (*MemHostAlloc)(void**, size_t, unsigned);
  int (*MemHostGetDevicePointer)(CuDevicePtr*, void*, unsigned);
  int (*MemcpyHtoD)(CuDevicePtr, const void*, size_t);
  int (*MemcpyDtoH)(void*, CuDevicePtr, size_t);
  int (*MemcpyDtoDAsync)(CuDevicePtr, CuDevicePtr, size_t, CuHandle);
  int (*MemsetD8Async)(CuDevicePtr, unsigned char, size_t, CuHandle);
  int (*MemsetD32Async)(CuDevicePtr, unsigned, size_t, CuHandle);
  int (*MemGetAllocationGranularity)(size_t*, const CuMemAllocationProp*, int);
  int (*MemCreate)(CuAllocation*, size_t, const CuMemAllocationProp*, unsigned long long);
  int (*MemRelease)(CuAllocation);
  int (*MemExportToShareableHandle)(void*, CuAllocation, int, unsigned long long);
  int (*MemImportFromShareableHandle)(CuAllocation*, void*, int);
  int (*MemAddressReserve)(CuDevicePtr*, size_t, size_t, CuDevicePtr, unsigned long long);
  int (*MemAddressFree)(CuDevicePtr, size_t);
  int (*MemMap)(CuDevicePtr, size_t, size_t, CuAllocation, unsigned long long);
  int (*MemUnmap)(CuDevicePtr, size_t);
  int (*MemSetAccess)(CuDevicePtr, size_t, const CuMemAccess*, size_t);
  int (*ModuleLoadData)(CuHandle*, const void*);
  int (*ModuleUnload)(CuHandle);
  int (*ModuleGetFunction)(CuHandle*, CuHandle, const char*);
  int (*ModuleGetGlobal)(CuDevicePtr*, size_t*, CuHandle, const char*);
  int (*FuncSetAttribute)(CuHandle, int, int);
  int (*LaunchKernelEx)(const CuLaunchConfig*, CuHandle, void**, void**);
  int (*StreamCreate)(CuHandle*, unsigned);
  int (*StreamSynchronize)(CuHandle);
  int (*StreamWaitValue32)(CuHandle, CuDevicePtr, uint32_t, unsigned);
  int (*StreamWriteValue32)(CuHandle, CuDevicePtr, uint32_t, unsigned);
  int (*StreamGetCaptureInfo)(CuHandle, int*, unsigned long long*, void*, void*, void*, size_t*);
  int (*ThreadExchangeStreamCaptureMode)(int*);
  int (*EventCreate)(CuHandle*, unsigned);
  int (*EventQuery)(CuHandle);
  int (*EventDestroy)(CuHandle);
  int (*EventRecord)(CuHandle, CuHandle);
  int (*EventSynchronize)(CuHandle);
  int (*EventElapsedTime)(float*, CuHandle, CuHandle);
  int (*ProfilerStart)();
  int (*ProfilerStop)();
  int (*GetErrorName)(int, const char**);
  int (*GetErrorString)(int, const char**);
  int (*TensorMapEncodeTiled)(CuTensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                              const uint32_t*, const uint32_t*, int, int, int, int);
};

// Finds the library and calls cuInit. Throws Error(kMachine) when there is no usable driver.
const Driver& LoadDriver();
const Driver& Cu();  // after LoadDriver()
void CheckCu(int result, const char* call);
#define KEVIN_CU(call, ...) ::kevin::CheckCu(::kevin::Cu().call(__VA_ARGS__), "cu" #call)

// These throw DriverError.
void UsePrimaryContext(int device);  // makes it the current one of this thread; it is not given back
int AttributeOf(int device, CuDeviceAttribute attribute);
std::string PciBusOf(int device);  // "0000:18:00.0"
struct DeviceMemoryBytes {
  size_t free = 0, total = 0;
};
DeviceMemoryBytes MemoryOfDevice();  // of the current context

}  // namespace kevin
