#pragma once
// The functions between an extension that was compiled with the headers of this folder and torch. kevin-python-worker.so
// implements them with torch's own headers (env/python/torch_table.cc); an extension reaches them by KevinTorchTable().
//
// Plain C types, so that neither side sees the other's classes. A tensor is a handle: a counted reference to torch's
// TensorImpl, null for an undefined tensor. "Owned": whoever gets the handle calls `release` once. A function that fails
// throws torch's own exception, a std::exception. A Python object is a PyObject*; those functions need Python's lock.

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace kevin_torch {

// An extension throws it where torch's headers throw c10::NotImplementedError; every other exception is one of the library's.
struct NotImplemented : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr uint64_t kTableVersion = 1;

// c10::TensorOptions. Below 0: not given.
struct OptionsValue {
  int32_t dtype = -1, device_type = -1, device_index = -1, layout = -1, memory_format = -1,
          requires_grad = -1, pinned = -1;
};

// An argument or a result of an operator.
struct Value {
  enum Kind : int64_t { kNone, kTensor, kInt, kDouble, kBool, kInts, kDoubles, kTensors, kText, kDevice };
  Kind kind = kNone;
  int64_t count = 0;  // of the elements behind `pointer`; of kDevice: its index
  union {
    int64_t integer = 0;
    double real;
    const void*
        pointer;  // of kTensor, owned in results: the handle; of kTensors: handles; of kText: ended by 0
  };
};

struct Table {
  uint64_t version;

  // --- References ---
  void (*retain)(void* tensor);
  void (*release)(void* tensor);

  // --- Facts of a defined tensor ---
  int64_t (*dim)(const void* tensor);
  int64_t (*numel)(const void* tensor);
  int64_t (*size)(const void* tensor, int64_t dim);  // negative dims count from the end
  int64_t (*stride)(const void* tensor, int64_t dim);
  const int64_t* (*sizes)(const void* tensor);
  const int64_t* (*strides)(const void* tensor);
  void* (*mutable_data)(const void* tensor);
  const void* (*const_data)(const void* tensor);
  bool (*is_contiguous)(const void* tensor, int32_t memory_format);
  OptionsValue (*options)(const void* tensor);  // with every member but memory_format
  int64_t (*element_size)(const void* tensor);
  int64_t (*storage_offset)(const void* tensor);

  // --- New tensors, owned ---
  void* (*empty)(const int64_t* sizes, size_t count, const OptionsValue* options);
  void* (*from_memory)(void* data, const int64_t* sizes, size_t count,
                       const OptionsValue* options);  // not owned memory

  // Calls an operator of torch by its name ("aten::mm") and overload; `cached` is one static pointer for each pair, null at
  // first. The number of results.
  size_t (*call)(const void** cached, const char* name, const char* overload, const Value* arguments,
                 size_t count, Value* results, size_t most);

  // --- Devices. Of type CUDA; where torch has none these throw ---
  int32_t (*current_device)();
  int32_t (*exchange_device)(int32_t device);  // the one before
  void* (*current_stream)(int32_t device);     // a cudaStream_t; below 0: of the current device

  // --- From Python. Objects are borrowed; false, null or -1 without a Python error: of another type ---
  void* (*to_tensor)(void* object);  // owned
  bool (*to_integer)(void* object, int64_t* value);
  bool (*to_real)(void* object, double* value);
  bool (*to_bool)(void* object, bool* value);
  const char* (*to_text)(void* object, size_t* bytes);
  int64_t (*sequence_size)(void* object);  // of a list or a tuple
  void* (*sequence_item)(void* object, int64_t index);
  bool (*is_none)(void* object);

  // --- To Python: new references ---
  void* (*from_tensor)(const void* tensor);  // None for an undefined one
  void* (*from_integer)(int64_t value);
  void* (*from_real)(double value);
  void* (*from_bool)(bool value);
  void* (*from_text)(const char* text, size_t bytes);
  void* (*from_none)();
  void* (*from_sequence)(void* const* objects, size_t count, bool is_tuple);  // takes the references
};

// A function of an extension as Python sees it. Lives as long as the extension.
struct BoundFunction {
  const char* name;
  const char* doc;
  // Converts `arguments`, calls, and sets *result to a new reference. False: an argument is of another type.
  bool (*call)(const BoundFunction* self, void* const* arguments, void** result);
  void (*function)();        // of the type that `call` knows
  int32_t count;             // of arguments
  const char* const* names;  // null: no keywords
};

struct BoundModule {
  uint64_t version;
  const BoundFunction* functions;
  size_t count;
};

}  // namespace kevin_torch

extern "C" __attribute__((visibility("default"))) const kevin_torch::Table* KevinTorchTable();
