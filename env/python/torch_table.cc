// The functions that extensions with Kevin's own headers call (env/python/headers/kevin/torch_table.h), on torch's own
// classes. Part of kevin-python-worker.so, so that it is compiled once and not with each extension.

#include "env/python/headers/kevin/torch_table.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <string>
#include <vector>

#include "env/python/torch_binding.h"

namespace kevin_torch {
namespace {

using Pointer = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

c10::TensorImpl* ImplOf(const void* handle) {
  return static_cast<c10::TensorImpl*>(const_cast<void*>(handle));
}
at::Tensor TensorOf(const void* handle) {
  return handle == nullptr ? at::Tensor() : at::Tensor(Pointer::reclaim_copy(ImplOf(handle)));
}
void* Give(at::Tensor tensor) { return tensor.defined() ? tensor.unsafeReleaseTensorImpl() : nullptr; }

void Retain(void* handle) { Pointer::reclaim_copy(ImplOf(handle)).release(); }
void Release(void* handle) { Pointer::reclaim(ImplOf(handle)); }

int64_t SizeOf(const void* handle, int64_t dim) { return ImplOf(handle)->size(dim); }
int64_t StrideOf(const void* handle, int64_t dim) { return ImplOf(handle)->stride(dim); }
bool IsContiguous(const void* handle, int32_t format) {
  return ImplOf(handle)->is_contiguous(static_cast<at::MemoryFormat>(format));
}

OptionsValue OptionsOf(const void* handle) {
  const c10::TensorImpl* impl = ImplOf(handle);
  OptionsValue value;
  value.dtype = static_cast<int32_t>(c10::typeMetaToScalarType(impl->dtype()));
  const c10::Device device = impl->device();
  value.device_type = static_cast<int32_t>(device.type());
  value.device_index = device.index();
  value.layout = static_cast<int32_t>(impl->layout());
  value.requires_grad = impl->requires_grad() ? 1 : 0;
  return value;
}

c10::TensorOptions OptionsFrom(const OptionsValue& value) {
  c10::TensorOptions options;
  if (value.dtype >= 0) options = options.dtype(static_cast<c10::ScalarType>(value.dtype));
  if (value.device_type >= 0)
    options = options.device(c10::Device(static_cast<c10::DeviceType>(value.device_type),
                                         static_cast<c10::DeviceIndex>(value.device_index)));
  if (value.layout >= 0) options = options.layout(static_cast<c10::Layout>(value.layout));
  if (value.pinned >= 0) options = options.pinned_memory(value.pinned == 1);
  if (value.memory_format >= 0)
    options = options.memory_format(static_cast<c10::MemoryFormat>(value.memory_format));
  return options;
}

void* Empty(const int64_t* sizes, size_t count, const OptionsValue* options) {
  at::Tensor made = at::empty(at::IntArrayRef(sizes, count), OptionsFrom(*options));
  if (options->requires_grad == 1) made.set_requires_grad(true);
  return Give(std::move(made));
}
void* FromMemory(void* data, const int64_t* sizes, size_t count, const OptionsValue* options) {
  return Give(at::from_blob(data, at::IntArrayRef(sizes, count), OptionsFrom(*options)));
}

// --- Operators ---

c10::IValue IValueOf(const Value& value, const c10::Type& wanted) {
  switch (value.kind) {
    case Value::kNone:
      return wanted.kind() == c10::TypeKind::TensorType ? c10::IValue(at::Tensor()) : c10::IValue();
    case Value::kTensor:
      return TensorOf(value.pointer);
    case Value::kInt:
      return value.integer;
    case Value::kDouble:
      return value.real;
    case Value::kBool:
      return value.integer != 0;
    case Value::kInts: {
      const auto* first = static_cast<const int64_t*>(value.pointer);
      return std::vector<int64_t>(first, first + value.count);
    }
    case Value::kDoubles: {
      const auto* first = static_cast<const double*>(value.pointer);
      return std::vector<double>(first, first + value.count);
    }
    case Value::kTensors: {
      const auto* first = static_cast<void* const*>(value.pointer);
      c10::List<at::Tensor> list;
      for (int64_t i = 0; i < value.count; ++i) list.push_back(TensorOf(first[i]));
      return list;
    }
    case Value::kText:
      return std::string(static_cast<const char*>(value.pointer), static_cast<size_t>(value.count));
    case Value::kDevice:
      return c10::Device(static_cast<c10::DeviceType>(value.integer),
                         static_cast<c10::DeviceIndex>(value.count));
  }
  TORCH_CHECK(false, "an argument of unknown kind");
}

Value ValueOf(const c10::IValue& value) {
  Value made;
  if (value.isTensor()) {
    made.kind = Value::kTensor;
    made.pointer = Give(value.toTensor());
  } else if (value.isInt()) {
    made.kind = Value::kInt;
    made.integer = value.toInt();
  } else if (value.isBool()) {
    made.kind = Value::kBool;
    made.integer = value.toBool();
  } else if (value.isDouble()) {
    made.kind = Value::kDouble;
    made.real = value.toDouble();
  }
  return made;
}

// An operator that was looked up; never freed, because calls point to it.
const c10::OperatorHandle& Found(const void** cached, const char* name, const char* overload) {
  if (*cached == nullptr)
    *cached = new c10::OperatorHandle(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
  return *static_cast<const c10::OperatorHandle*>(*cached);
}

size_t CallOperator(const void** cached, const char* name, const char* overload, const Value* arguments,
                    size_t count, Value* results, size_t most) {
  const c10::OperatorHandle& found = Found(cached, name, overload);
  const std::vector<c10::Argument>& wanted = found.schema().arguments();
  TORCH_CHECK(count <= wanted.size(), name, " takes ", wanted.size(), " arguments");
  torch::jit::Stack stack;
  stack.reserve(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i < count) {
      stack.push_back(IValueOf(arguments[i], *wanted[i].type()));
    } else {
      TORCH_CHECK(wanted[i].default_value(), name, " needs the argument ", wanted[i].name());
      stack.push_back(*wanted[i].default_value());
    }
  }
  found.callBoxed(&stack);
  TORCH_CHECK(stack.size() <= most, name, " returns ", stack.size(), " values");
  for (size_t i = 0; i < stack.size(); ++i) results[i] = ValueOf(stack[i]);
  return stack.size();
}

// --- Devices ---

int32_t CurrentDevice() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice().index(); }
int32_t ExchangeDevice(int32_t device) {
  const c10::Device wanted(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).exchangeDevice(wanted).index();
}
void* CurrentStream(int32_t device) {
  using Get = int32_t (*)(int32_t device, void** stream);  // aoti_torch_get_current_cuda_stream
  static const auto get = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return reinterpret_cast<Get>(library == nullptr ? nullptr
                                                    : dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  TORCH_CHECK(get != nullptr, "this torch has no CUDA");
  void* stream = nullptr;
  TORCH_CHECK(get(device < 0 ? CurrentDevice() : device, &stream) == 0, "no current stream of device ",
              device);
  return stream;
}

}  // namespace

at::Tensor TensorOfHandle(const void* handle) { return TensorOf(handle); }
void* HandleOfTensor(at::Tensor tensor) { return Give(std::move(tensor)); }

}  // namespace kevin_torch

extern "C" const kevin_torch::Table* KevinTorchTable() {
  using namespace kevin_torch;
  static const Table table = [] {
    Table made{};
    made.version = kTableVersion;
    made.retain = Retain;
    made.release = Release;
    made.dim = [](const void* handle) { return ImplOf(handle)->dim(); };
    made.numel = [](const void* handle) { return ImplOf(handle)->numel(); };
    made.size = SizeOf;
    made.stride = StrideOf;
    made.sizes = [](const void* handle) { return ImplOf(handle)->sizes().data(); };
    made.strides = [](const void* handle) { return ImplOf(handle)->strides().data(); };
    made.mutable_data = [](const void* handle) { return ImplOf(handle)->mutable_data(); };
    made.const_data = [](const void* handle) -> const void* { return ImplOf(handle)->data(); };
    made.is_contiguous = IsContiguous;
    made.options = OptionsOf;
    made.element_size = [](const void* handle) { return static_cast<int64_t>(ImplOf(handle)->itemsize()); };
    made.storage_offset = [](const void* handle) { return ImplOf(handle)->storage_offset(); };
    made.empty = Empty;
    made.from_memory = FromMemory;
    made.call = CallOperator;
    made.current_device = CurrentDevice;
    made.exchange_device = ExchangeDevice;
    made.current_stream = CurrentStream;
    AddPythonFunctions(&made);
    return made;
  }();
  return &table;
}
