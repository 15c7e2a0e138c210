#include "env/gpu/runner/driver.h"

#include <dlfcn.h>

#include "env/error.h"

namespace kevin {
namespace {

Driver driver;
bool loaded = false;

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (!*function) {
    throw Error(ExitCode::kMachine,
                std::string("the NVIDIA driver on this machine is too old: it lacks ") + name,
                "install driver 580 or newer (CUDA 13)");
  }
}

void FindAll(void* library) {
  Find(library, "cuInit", &driver.Init);
  Find(library, "cuDriverGetVersion", &driver.DriverGetVersion);
  Find(library, "cuDeviceGetCount", &driver.DeviceGetCount);
  Find(library, "cuDeviceGetName", &driver.DeviceGetName);
  Find(library, "cuDeviceGetPCIBusId", &driver.DeviceGetPCIBusId);
  Find(library, "cuDeviceGetAttribute", &driver.DeviceGetAttribute);
  Find(library, "cuDevicePrimaryCtxRetain", &driver.DevicePrimaryCtxRetain);
  Find(library, "cuDevicePrimaryCtxSetFlags_v2", &driver.DevicePrimaryCtxSetFlags);
  Find(library, "cuCtxSetCurrent", &driver.CtxSetCurrent);
  Find(library, "cuCtxSynchronize", &driver.CtxSynchronize);
  Find(library, "cuMemGetInfo_v2", &driver.MemGetInfo);
  Find(library, "cuMemAlloc_v2", &driver.MemAlloc);
  Find(library, "cuMemFree_v2", &driver.MemFree);
  Find(library, "cuMemHostAlloc", &driver.MemHostAlloc);
  Find(library, "cuMemHostGetDevicePointer_v2", &driver.MemHostGetDevicePointer);
  Find(library, "cuMemcpyHtoD_v2", &driver.MemcpyHtoD);
  Find(library, "cuMemcpyDtoH_v2", &driver.MemcpyDtoH);
  Find(library, "cuMemcpyDtoDAsync_v2", &driver.MemcpyDtoDAsync);
  Find(library, "cuMemsetD8Async", &driver.MemsetD8Async);
  Find(library, "cuMemsetD32Async", &driver.MemsetD32Async);
  Find(library, "cuMemGetAllocationGranularity", &driver.MemGetAllocationGranularity);
  Find(library, "cuMemCreate", &driver.MemCreate);
  Find(library, "cuMemRelease", &driver.MemRelease);
  Find(library, "cuMemExportToShareableHandle", &driver.MemExportToShareableHandle);
  Find(library, "cuMemImportFromShareableHandle", &driver.MemImportFromShareableHandle);
  Find(library, "cuMemAddressReserve", &driver.MemAddressReserve);
  Find(library, "cuMemAddressFree", &driver.MemAddressFree);
  Find(library, "cuMemMap", &driver.MemMap);
  Find(library, "cuMemUnmap", &driver.MemUnmap);
  Find(library, "cuMemSetAccess", &driver.MemSetAccess);
  Find(library, "cuModuleLoadData", &driver.ModuleLoadData);
  Find(library, "cuModuleUnload", &driver.ModuleUnload);
  Find(library, "cuModuleGetFunction", &driver.ModuleGetFunction);
  Find(library, "cuModuleGetGlobal_v2", &driver.ModuleGetGlobal);
  Find(library, "cuFuncSetAttribute", &driver.FuncSetAttribute);
  Find(library, "cuLaunchKernelEx", &driver.LaunchKernelEx);
  Find(library, "cuStreamCreate", &driver.StreamCreate);
  Find(library, "cuStreamSynchronize", &driver.StreamSynchronize);
  Find(library, "cuStreamWaitValue32_v2", &driver.StreamWaitValue32);
  Find(library, "cuStreamWriteValue32_v2", &driver.StreamWriteValue32);
  Find(library, "cuStreamGetCaptureInfo_v3", &driver.StreamGetCaptureInfo);
  Find(library, "cuThreadExchangeStreamCaptureMode", &driver.ThreadExchangeStreamCaptureMode);
  Find(library, "cuEventCreate", &driver.EventCreate);
  Find(library, "cuEventQuery", &driver.EventQuery);
  Find(library, "cuEventDestroy_v2", &driver.EventDestroy);
  Find(library, "cuEventRecord", &driver.EventRecord);
  Find(library, "cuEventSynchronize", &driver.EventSynchronize);
  Find(library, "cuEventElapsedTime", &driver.EventElapsedTime);
  Find(library, "cuProfilerStart", &driver.ProfilerStart);
  Find(library, "cuProfilerStop", &driver.ProfilerStop);
  Find(library, "cuGetErrorName", &driver.GetErrorName);
  Find(library, "cuGetErrorString", &driver.GetErrorString);
  Find(library, "cuTensorMapEncodeTiled", &driver.TensorMapEncodeTiled);
}

}  // namespace

bool DriverError::fatal() const {
  // Out of memory and refused launches leave the context whole; everything from "illegal address" on does
  // not.
  constexpr int kIllegalAddress = 700, kLaunchOutOfResources = 701, kCooperativeTooLarge = 720;
  return code_ >= kIllegalAddress && code_ != kLaunchOutOfResources && code_ != kCooperativeTooLarge;
}

bool DriverError::out_of_memory() const {
  constexpr int kOutOfMemory = 2;
  return code_ == kOutOfMemory;
}

const Driver& LoadDriver() {
  if (loaded) return driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    throw Error(ExitCode::kMachine, "no NVIDIA driver on this machine (libcuda.so.1 was not found)",
                "install the driver, or use --device cpu");
  }
  FindAll(library);
  loaded = true;
  CheckCu(driver.Init(0), "cuInit");
  return driver;
}

const Driver& Cu() { return driver; }

void CheckCu(int result, const char* call) {
  if (result == 0) return;
  const char *name = nullptr, *text = nullptr;
  driver.GetErrorName(result, &name);
  driver.GetErrorString(result, &text);
  throw DriverError(result, std::string(call) + ": " + (name ? name : "unknown error") + " (" +
                                std::to_string(result) + (text ? std::string(", ") + text : "") + ")");
}

void UsePrimaryContext(int device) {
  CuHandle context = nullptr;
  KEVIN_CU(DevicePrimaryCtxRetain, &context, device);
  KEVIN_CU(CtxSetCurrent, context);
}

int AttributeOf(int device, CuDeviceAttribute attribute) {
  int value = 0;
  KEVIN_CU(DeviceGetAttribute, &value, attribute, device);
  return value;
}

std::string PciBusOf(int device) {
  char bus[32] = {};
  KEVIN_CU(DeviceGetPCIBusId, bus, sizeof(bus), device);
  return bus;
}

DeviceMemoryBytes MemoryOfDevice() {
  DeviceMemoryBytes bytes;
  KEVIN_CU(MemGetInfo, &bytes.free, &bytes.total);
  return bytes;
}

}  // namespace kevin
