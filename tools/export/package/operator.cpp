// The operator: checks, outputs, workspaces, and one call of the kernel that was made for these shapes. Uses torch's
// stable C interface alone, so that it compiles in seconds. operator_data.h has the tensors and shapes.

// clang-format off
#include "operator_data.h"  // first: for a GPU it defines USE_CUDA, which the others ask for
// clang-format on

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#ifdef USE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr uintptr_t kAlignment = kOnGpu ? 256 : 64;  // of memory that the kernel was measured with
constexpr int kTensors = kInputs + kOutputs;
constexpr int kMostExtents = std::max(1, *std::max_element(std::begin(kRanks), std::end(kRanks)));

void Check(AOTITorchError error, const char* what) {
  if (error != AOTI_TORCH_SUCCESS) throw std::runtime_error(std::string(KEVIN_NAME ": ") + what + " failed");
}

int32_t TypeCode(Type type) {
  switch (type) {
    case Type::kF32:
      return aoti_torch_dtype_float32();
    case Type::kF16:
      return aoti_torch_dtype_float16();
    case Type::kBF16:
      return aoti_torch_dtype_bfloat16();
    case Type::kI64:
      return aoti_torch_dtype_int64();
    case Type::kI32:
      return aoti_torch_dtype_int32();
    case Type::kBool:
      return aoti_torch_dtype_bool();
  }
  return -1;
}

int64_t TypeBytes(Type type) {
  return type == Type::kI64 ? 8 : type == Type::kF32 || type == Type::kI32 ? 4 : type == Type::kBool ? 1 : 2;
}

class Tensor {
 public:
  explicit Tensor(AtenTensorHandle handle = nullptr) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(other.Release()) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  static Tensor Empty(const int64_t* extents, int rank, Type type, int32_t device_type, int32_t device) {
    int64_t strides[kMostExtents] = {};
    int64_t stride = 1;
    for (int i = rank; i-- > 0;) {
      strides[i] = stride;
      stride *= extents[i];
    }
    Tensor tensor;
    Check(aoti_torch_empty_strided(rank, extents, strides, TypeCode(type), device_type, device,
                                   &tensor.handle_),
          "the allocation of memory");
    return tensor;
  }
  static Tensor Bytes(int64_t bytes, int32_t device_type, int32_t device) {
    const int64_t extent = bytes > 0 ? bytes : 1;
    return Empty(&extent, 1, Type::kBool, device_type, device);
  }

  char* Data() const {
    void* data = nullptr;
    Check(aoti_torch_get_data_ptr(handle_, &data), "data_ptr");
    return static_cast<char*>(data);
  }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle Release() {
    AtenTensorHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }

 private:
  AtenTensorHandle handle_;
};

std::atomic<void*> kernels[kShapes];
std::mutex cpu_mutex;  // a kernel for the CPU may keep state and uses all threads

std::string ShapeText(const int64_t* extents, int64_t rank) {
  std::string text = "[";
  for (int64_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(extents[i]);
  return text + "]";
}

// One call's inputs.
class Call {
 public:
  explicit Call(StableIValue* stack) {
    inputs_.reserve(kInputs);
    for (int i = 0; i < kInputs; ++i) {
      AtenTensorHandle handle = nullptr;
      std::memcpy(&handle, &stack[i], sizeof handle);
      inputs_.emplace_back(handle);
    }
    CheckDeviceAndType();
    shape_ = FindShape();
    CheckOverlap();
  }

  int shape() const { return shape_; }
  int32_t device() const { return device_; }

  Tensor MakeOutput(int i) const {
    return Tensor::Empty(kExtents[shape_] + kFirstExtent[kInputs + i], kRanks[kInputs + i],
                         kTypes[kInputs + i], device_type_, device_);
  }
  Tensor MakeBytes(int64_t bytes) const { return Tensor::Bytes(bytes, device_type_, device_); }

  // The buffers of the kernel, without outputs. `stream` is CUDA's, or null.
  void AddInputs(std::vector<char*>* buffers, void* stream) {
    const int separate = kBlockBegin < 0 ? kInputs : kBlockBegin;
    for (int i = 0; i < separate; ++i) buffers->push_back(Aligned(i, stream));
    if (kBlockBegin >= 0) buffers->push_back(Block(stream));
  }

  // Behind the kernel: input-outputs that it did not take where they lie.
  void CopyBack(void* stream) {
    for (const Aside& one : aside_) Copy(inputs_[one.input].Data(), one.data, BytesOf(one.input), stream);
  }

 private:
  int64_t BytesOf(int i) const {
    int64_t bytes = TypeBytes(kTypes[i]);
    for (int d = 0; d < kRanks[i]; ++d) bytes *= kExtents[shape_][kFirstExtent[i] + d];
    return bytes;
  }

  void CheckDeviceAndType() {
    for (int i = 0; i < kInputs; ++i) {
      int32_t type = 0, device_type = 0, device = 0;
      bool contiguous = false;
      aoti_torch_get_dtype(inputs_[i].get(), &type);
      aoti_torch_get_device_type(inputs_[i].get(), &device_type);
      aoti_torch_get_device_index(inputs_[i].get(), &device);
      aoti_torch_is_contiguous(inputs_[i].get(), &contiguous);
      if (i == 0) device_type_ = device_type, device_ = device;
      const int32_t wanted = kOnGpu ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
      if (device_type != wanted || device != device_)
        Refuse(i, kOnGpu ? "must be on the CUDA device of the first input" : "must be on the CPU");
      if (type != TypeCode(kTypes[i])) Refuse(i, std::string("must have the dtype ") + kTypeNames[i]);
      if (!contiguous) Refuse(i, "must be contiguous");
    }
  }

  int FindShape() const {
    int64_t* sizes[kInputs];
    int64_t ranks[kInputs];
    for (int i = 0; i < kInputs; ++i) {
      aoti_torch_get_sizes(inputs_[i].get(), &sizes[i]);
      aoti_torch_get_dim(inputs_[i].get(), &ranks[i]);
      if (ranks[i] != kRanks[i])
        Refuse(i, "has the shape " + ShapeText(sizes[i], ranks[i]) + "; this kernel was made for " +
                      ShapeText(kExtents[0] + kFirstExtent[i], kRanks[i]));
    }
    for (int shape = 0; shape < kShapes; ++shape) {
      bool fits = true;
      for (int i = 0; fits && i < kInputs; ++i)
        fits = std::equal(sizes[i], sizes[i] + ranks[i], kExtents[shape] + kFirstExtent[i]);
      if (fits) return shape;
    }
    for (int i = 0; i < kInputs; ++i) {
      if (!std::equal(sizes[i], sizes[i] + ranks[i], kExtents[0] + kFirstExtent[i]))
        Refuse(i, "has the shape " + ShapeText(sizes[i], ranks[i]) + "; this kernel was made for " +
                      ShapeText(kExtents[0] + kFirstExtent[i], kRanks[i]) +
                      (kShapes > 1 ? " and further shapes" : ""));
    }
    throw std::runtime_error(KEVIN_NAME ": these shapes together are none that this kernel was made for");
  }

  [[noreturn]] static void Refuse(int i, const std::string& why) {
    throw std::runtime_error(std::string(KEVIN_NAME ": ") + kNames[i] + " " + why);
  }

  static void Copy(char* to, const char* from, int64_t bytes, void* stream) {
#ifdef USE_CUDA
    const cudaError_t error = cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                              static_cast<cudaStream_t>(stream));
    if (error != cudaSuccess)
      throw std::runtime_error(std::string(KEVIN_NAME ": a copy failed: ") + cudaGetErrorString(error));
#else
    (void)stream;
    std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
  }

  // A view into the middle of a tensor may begin anywhere.
  char* Aligned(int i, void* stream) {
    char* data = inputs_[i].Data();
    if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0) return data;
    temporary_.push_back(MakeBytes(BytesOf(i)));
    Copy(temporary_.back().Data(), data, BytesOf(i), stream);
    if (kInOut[i]) aside_.push_back({i, temporary_.back().Data()});
    return temporary_.back().Data();
  }

  // The kernel was verified with tensors that share no memory.
  void CheckOverlap() const {
    for (int i = 0; i < kInputs; ++i) {
      if (!kInOut[i]) continue;
      const char* const begin = inputs_[i].Data();
      for (int j = 0; j < kInputs; ++j) {
        const char* const other = inputs_[j].Data();
        if (j != i && other < begin + BytesOf(i) && begin < other + BytesOf(j))
          Refuse(i, std::string("shares memory with ") + kNames[j] + ", and the kernel writes into it");
      }
    }
  }

  // Parameters that lie as the kernel takes them (flatten_parameters) are not copied.
  char* Block(void* stream) {
    const int64_t bytes = TypeBytes(kTypes[kBlockBegin]);
    char* const base = inputs_[kBlockBegin].Data() - kOffsets[shape_][0] * bytes;
    bool in_place = reinterpret_cast<uintptr_t>(base) % kAlignment == 0;
    for (int i = kBlockBegin; in_place && i < kInputs; ++i)
      in_place = inputs_[i].Data() == base + kOffsets[shape_][i - kBlockBegin] * bytes;
    if (in_place) return base;
    temporary_.push_back(MakeBytes(kBlockElements[shape_] * bytes));
    char* const block = temporary_.back().Data();
    for (int i = kBlockBegin; i < kInputs; ++i)
      Copy(block + kOffsets[shape_][i - kBlockBegin] * bytes, inputs_[i].Data(), BytesOf(i), stream);
    return block;
  }

  struct Aside {
    int input;
    char* data;
  };
  std::vector<Tensor> inputs_, temporary_;
  std::vector<Aside> aside_;
  int32_t device_type_ = 0, device_ = 0;
  int shape_ = 0;
};

#ifdef USE_CUDA
class DeviceGuard {
 public:
  explicit DeviceGuard(int32_t device) {
    int current = -1;
    if (cudaGetDevice(&current) == cudaSuccess && current == device) return;  // a guard takes longer
    Check(aoti_torch_create_cuda_guard(device, &guard_), "the choice of the device");
  }
  ~DeviceGuard() {
    if (guard_ != nullptr) aoti_torch_delete_cuda_guard(guard_);
  }
  DeviceGuard(const DeviceGuard&) = delete;

 private:
  CUDAGuardHandle guard_ = nullptr;
};
#endif

void Launch(void* kernel, char* const* buffers, int32_t device, void* stream) {
#ifdef USE_CUDA
  const auto run = reinterpret_cast<const char* (*)(char* const*, int, void*)>(kernel);
  const char* const error = run(buffers, device, stream);
  if (error != nullptr)
    throw std::runtime_error(std::string(KEVIN_NAME ": the kernel cannot be launched: ") + error);
#else
  (void)device, (void)stream;
  const std::lock_guard lock(cpu_mutex);
  reinterpret_cast<void (*)(char* const*)>(kernel)(buffers);
#endif
}

// Memory that is given back when this returns is reused by torch's allocator only behind the kernel, on its stream.
void Forward(StableIValue* stack, uint64_t, uint64_t) {
  Call call(stack);
  void* const kernel = kernels[call.shape()].load(std::memory_order_acquire);
  if (kernel == nullptr) throw std::runtime_error(KEVIN_NAME ": the kernel is not loaded");
  void* stream = nullptr;
#ifdef USE_CUDA
  const DeviceGuard guard(call.device());
  Check(aoti_torch_get_current_cuda_stream(call.device(), &stream), "the search for the current stream");
#endif
  std::vector<char*> buffers;
  buffers.reserve(kTensors + kMostWorkspaces);
  call.AddInputs(&buffers, stream);
  std::vector<Tensor> outputs, workspaces;
  for (int i = 0; i < kOutputs; ++i) {
    outputs.push_back(call.MakeOutput(i));
    buffers.push_back(outputs.back().Data());
  }
  for (int i = 0; i < kWorkspaceCount[call.shape()]; ++i) {
    workspaces.push_back(call.MakeBytes(kWorkspaceBytes[call.shape()][i]));
    buffers.push_back(workspaces.back().Data());
  }
  Launch(kernel, buffers.data(), call.device(), stream);
  call.CopyBack(stream);
  for (int i = 0; i < kOutputs; ++i) {
    AtenTensorHandle handle = outputs[static_cast<size_t>(i)].Release();
    stack[i] = 0;
    std::memcpy(&stack[i], &handle, sizeof handle);
  }
}

}  // namespace

extern "C" void kevin_set_kernel(int shape, void* kernel) {
  kernels[shape].store(kernel, std::memory_order_release);
}

// `run` gets an autograd formula in Python, unless it writes into its inputs; `forward` is the same without one.
STABLE_TORCH_LIBRARY(KEVIN_NAMESPACE, m) {
  m.def("run" KEVIN_SCHEMA);
  m.def("forward" KEVIN_SCHEMA);
}
#ifdef USE_CUDA
STABLE_TORCH_LIBRARY_IMPL(KEVIN_NAMESPACE, CUDA, m) {
#else
STABLE_TORCH_LIBRARY_IMPL(KEVIN_NAMESPACE, CPU, m) {
#endif
  m.impl("run", &Forward);
  m.impl("forward", &Forward);
}
