#include "policies/local/gpu/gpu_program.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "env/error.h"

namespace kevin::local {
namespace {

struct LaunchAttribute {
  int id = 0;
  char padding[4] = {};
  union {
    char bytes[64] = {};
    int value;
  };
};
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared_bytes = 0;
  void* stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76, kBlockSharedBytes = 97;  // CUdevice_attribute
constexpr int kMostDynamicShared = 8;  // CUfunction_attribute
constexpr int kCooperative = 2;        // CUlaunchAttributeID
constexpr unsigned kMapped = 2;        // CU_MEMHOSTALLOC_DEVICEMAP
constexpr int kThisThread = 1;         // CUstreamCaptureMode

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (!*function)
    throw Error(ExitCode::kMachine,
                std::string("the GPU's libraries on this machine are too old: no ") + name,
                "install driver 580 or newer and CUDA 13's NVRTC");
}

struct Driver {
  int (*DeviceGet)(int*, int) = nullptr;
  int (*DeviceGetAttribute)(int*, int, int) = nullptr;
  int (*DevicePrimaryCtxRetain)(void**, int) = nullptr;
  int (*CtxGetCurrent)(void**) = nullptr;
  int (*CtxSetCurrent)(void*) = nullptr;
  int (*ModuleLoadData)(void**, const void*) = nullptr;
  int (*ModuleUnload)(void*) = nullptr;
  int (*ModuleGetFunction)(void**, void*, const char*) = nullptr;
  int (*FuncSetAttribute)(void*, int, int) = nullptr;
  int (*LaunchKernelEx)(const LaunchConfig*, void*, void**, void**) = nullptr;
  int (*MemHostAlloc)(void**, size_t, unsigned) = nullptr;
  int (*MemFreeHost)(void*) = nullptr;
  int (*MemHostGetDevicePointer)(uint64_t*, void*, unsigned) = nullptr;
  int (*MemcpyHtoDAsync)(uint64_t, const void*, size_t, void*) = nullptr;
  int (*StreamCreate)(void**, unsigned) = nullptr;
  int (*StreamDestroy)(void*) = nullptr;
  int (*StreamBeginCapture)(void*, int) = nullptr;
  int (*StreamEndCapture)(void*, void**) = nullptr;
  int (*GraphInstantiate)(void**, void*, unsigned long long) = nullptr;
  int (*GraphLaunch)(void*, void*) = nullptr;
  int (*GraphDestroy)(void*) = nullptr;
  int (*GraphExecDestroy)(void*) = nullptr;
  int (*GetErrorName)(int, const char**) = nullptr;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
      throw Error(ExitCode::kMachine, "no NVIDIA driver on this machine (libcuda.so.1 was not found)",
                  "install the driver, or use --device cpu");
    Find(library, "cuDeviceGet", &DeviceGet);
    Find(library, "cuDeviceGetAttribute", &DeviceGetAttribute);
    Find(library, "cuDevicePrimaryCtxRetain", &DevicePrimaryCtxRetain);
    Find(library, "cuCtxGetCurrent", &CtxGetCurrent);
    Find(library, "cuCtxSetCurrent", &CtxSetCurrent);
    Find(library, "cuModuleLoadData", &ModuleLoadData);
    Find(library, "cuModuleUnload", &ModuleUnload);
    Find(library, "cuModuleGetFunction", &ModuleGetFunction);
    Find(library, "cuFuncSetAttribute", &FuncSetAttribute);
    Find(library, "cuLaunchKernelEx", &LaunchKernelEx);
    Find(library, "cuMemHostAlloc", &MemHostAlloc);
    Find(library, "cuMemFreeHost", &MemFreeHost);
    Find(library, "cuMemHostGetDevicePointer_v2", &MemHostGetDevicePointer);
    Find(library, "cuMemcpyHtoDAsync_v2", &MemcpyHtoDAsync);
    Find(library, "cuStreamCreate", &StreamCreate);
    Find(library, "cuStreamDestroy_v2", &StreamDestroy);
    Find(library, "cuStreamBeginCapture_v2", &StreamBeginCapture);
    Find(library, "cuStreamEndCapture", &StreamEndCapture);
    Find(library, "cuGraphInstantiateWithFlags", &GraphInstantiate);
    Find(library, "cuGraphLaunch", &GraphLaunch);
    Find(library, "cuGraphDestroy", &GraphDestroy);
    Find(library, "cuGraphExecDestroy", &GraphExecDestroy);
    Find(library, "cuGetErrorName", &GetErrorName);
  }
};

const Driver& Cu() {
  static const Driver driver;
  return driver;
}

void Check(int result, const char* what) {
  if (result == 0) return;
  const char* name = nullptr;
  Cu().GetErrorName(result, &name);
  throw Error(ExitCode::kBroken,
              fmt::format("the GPU fails in {}: {} ({})", what, name ? name : "unknown error", result),
              "see `nvidia-smi` and the kernel's log (Xid)");
}

struct Nvrtc {
  int (*CreateProgram)(void**, const char*, const char*, int, const char* const*,
                       const char* const*) = nullptr;
  int (*CompileProgram)(void*, int, const char* const*) = nullptr;
  int (*GetProgramLogSize)(void*, size_t*) = nullptr;
  int (*GetProgramLog)(void*, char*) = nullptr;
  int (*GetCubinSize)(void*, size_t*) = nullptr;
  int (*GetCubin)(void*, char*) = nullptr;

  Nvrtc() {
    void* library = nullptr;
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
      library = dlopen(name, RTLD_NOW);
      if (library) break;
    }
    if (!library)
      throw Error(ExitCode::kMachine, "NVRTC was not found (libnvrtc.so.13)",
                  "run tools/setup.sh, or put CUDA's libraries on LD_LIBRARY_PATH");
    Find(library, "nvrtcCreateProgram", &CreateProgram);
    Find(library, "nvrtcCompileProgram", &CompileProgram);
    Find(library, "nvrtcGetProgramLogSize", &GetProgramLogSize);
    Find(library, "nvrtcGetProgramLog", &GetProgramLog);
    Find(library, "nvrtcGetCUBINSize", &GetCubinSize);
    Find(library, "nvrtcGetCUBIN", &GetCubin);
  }
};

std::string Compile(const std::string& text, const std::vector<std::string>& macros, const GpuShape& gpu) {
  static const Nvrtc nvrtc;
  void* program = nullptr;
  nvrtc.CreateProgram(&program, text.c_str(), "kevin_local.cu", 0, nullptr, nullptr);
  std::vector<std::string> options = {
      fmt::format("-arch=sm_{}{}{}", gpu.major, gpu.minor, gpu.major == 9 ? "a" : ""), "-std=c++17",
      "-default-device"};
  for (const std::string& macro : macros) options.push_back("-D" + macro);
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  if (nvrtc.CompileProgram(program, static_cast<int>(pointers.size()), pointers.data()) != 0) {
    size_t size = 0;
    nvrtc.GetProgramLogSize(program, &size);
    std::string log(size, ' ');
    nvrtc.GetProgramLog(program, log.data());
    throw Error(ExitCode::kBroken, "the local model's kernels do not compile here: " + log.substr(0, 2000));
  }
  size_t size = 0;
  nvrtc.GetCubinSize(program, &size);
  std::string cubin(size, ' ');
  nvrtc.GetCubin(program, cubin.data());
  return cubin;
}

}  // namespace

GpuShape ShapeOfGpu(int index) {
  int device = 0;
  GpuShape shape;
  Check(Cu().DeviceGet(&device, index), "cuDeviceGet");
  Cu().DeviceGetAttribute(&shape.multiprocessors, kMultiprocessors, device);
  Cu().DeviceGetAttribute(&shape.block_shared_bytes, kBlockSharedBytes, device);
  Cu().DeviceGetAttribute(&shape.major, kMajor, device);
  Cu().DeviceGetAttribute(&shape.minor, kMinor, device);
  return shape;
}

void UseGpu(int index) {
  thread_local int latest = -1;  // and its context: contexts of devices live as long as the process
  thread_local void* context = nullptr;
  if (latest != index) {
    int device = 0;
    Check(Cu().DeviceGet(&device, index), "cuDeviceGet");
    Check(Cu().DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    latest = index;
  }
  void* current = nullptr;
  Check(Cu().CtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current != context) Check(Cu().CtxSetCurrent(context), "cuCtxSetCurrent");
}

GpuProgram::GpuProgram(const std::string& text, const std::vector<std::string>& macros, const GpuShape& gpu) {
  Check(Cu().ModuleLoadData(&module_, Compile(text, macros, gpu).data()), "loading kernels");
}

GpuProgram::~GpuProgram() { Cu().ModuleUnload(module_); }

GpuProgram::Kernel GpuProgram::Find(const char* name, int shared_bytes) const {
  void* function = nullptr;
  Check(Cu().ModuleGetFunction(&function, module_, name), name);
  if (shared_bytes > 0) Check(Cu().FuncSetAttribute(function, kMostDynamicShared, shared_bytes), name);
  return function;
}

void GpuProgram::Launch(Kernel kernel, const GpuLaunch& launch, std::span<void* const> arguments) {
  LaunchAttribute cooperative;
  cooperative.id = kCooperative;
  cooperative.value = 1;
  LaunchConfig config;
  for (int i = 0; i < 3; ++i) config.grid[i] = launch.grid[i];
  config.block[0] = launch.threads;
  config.shared_bytes = launch.shared_bytes;
  config.stream = launch.stream;
  config.attributes = &cooperative;
  config.attribute_count = launch.cooperative ? 1 : 0;
  std::vector<void*> pointers(arguments.begin(), arguments.end());
  Check(Cu().LaunchKernelEx(&config, kernel, pointers.data(), nullptr), "launching a kernel");
}

GpuStream::GpuStream() { Check(Cu().StreamCreate(&stream_, 0), "cuStreamCreate"); }

GpuStream::~GpuStream() { Cu().StreamDestroy(stream_); }

GpuGraph::GpuGraph(const GpuStream& stream, const std::function<void()>& work) {
  void* graph = nullptr;
  Check(Cu().StreamBeginCapture(stream.handle(), kThisThread), "cuStreamBeginCapture");
  try {
    work();
  } catch (...) {
    Cu().StreamEndCapture(stream.handle(), &graph);
    if (graph) Cu().GraphDestroy(graph);
    throw;
  }
  Check(Cu().StreamEndCapture(stream.handle(), &graph), "recording launches");
  const int result = Cu().GraphInstantiate(&executable_, graph, 0);
  Cu().GraphDestroy(graph);
  Check(result, "cuGraphInstantiate");
}

GpuGraph::~GpuGraph() { Cu().GraphExecDestroy(executable_); }

void GpuGraph::Launch() const { Check(Cu().GraphLaunch(executable_, nullptr), "cuGraphLaunch"); }

PinnedMemory::PinnedMemory(size_t bytes) {
  Check(Cu().MemHostAlloc(&host_, bytes, kMapped), "cuMemHostAlloc");
  Check(Cu().MemHostGetDevicePointer(&device_, host_, 0), "cuMemHostGetDevicePointer");
}

PinnedMemory::~PinnedMemory() { Cu().MemFreeHost(host_); }

void CopyToDevice(void* to, const void* from, size_t bytes) {
  Check(Cu().MemcpyHtoDAsync(reinterpret_cast<uint64_t>(to), from, bytes, nullptr), "cuMemcpyHtoDAsync");
}

}  // namespace kevin::local
