#pragma once
// Types without tensors: numbers, devices, options, references to arrays, errors. Half, BFloat16 and accessors are torch's own
// (torch/headeronly), where a text uses them.
//
// Every header is parsed three times with each CUDA extension, so that little is included. Where a text needs more, env/python/
// own_headers.py defines KEVIN_STANDARD (the standard headers that torch/extension.h brings unsaid), KEVIN_HEADERONLY (Half,
// BFloat16, accessors) and KEVIN_OPERATORS (torch's operators).

#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef KEVIN_HEADERONLY
#include <torch/headeronly/core/TensorAccessor.h>
#include <torch/headeronly/macros/Macros.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#endif
#ifdef KEVIN_STANDARD
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <complex>
#include <deque>
#include <functional>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <queue>
#include <set>
#include <sstream>
#include <stack>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#endif

#include <kevin/torch_table.h>

namespace kevin_torch {

using DeviceIndex = int8_t;

// One for each extension, never another one's.
__attribute__((visibility("hidden"))) inline const Table* const table = KevinTorchTable();

// --- Errors ---

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void Raise(const char* file, int line, const std::string& text) {
  throw Error(text.empty() ? "check failed at " + std::string(file) + ":" + std::to_string(line) : text);
}

// The parts of a message. Of types that can only be streamed: with KEVIN_STANDARD.
inline void Append(std::string* text, const char* part) { *text += part; }
inline void Append(std::string* text, char part) { *text += part; }
inline void Append(std::string* text, const std::string& part) { *text += part; }
template <typename T>
std::enable_if_t<std::is_arithmetic_v<T>> Append(std::string* text, T part) {
  if constexpr (std::is_integral_v<T>) {
    *text += std::to_string(part);
  } else {
    char number[32];
    std::snprintf(number, sizeof(number), "%g", static_cast<double>(part));
    *text += number;
  }
}
struct Device;
struct TypeMeta;
enum class ScalarType : int8_t;
inline void Append(std::string* text, const Device& part);
inline void Append(std::string* text, const TypeMeta& part);
inline void Append(std::string* text, ScalarType part);
#ifdef KEVIN_STANDARD
template <typename T, typename = std::enable_if_t<!std::is_arithmetic_v<T>>>
auto Append(std::string* text, const T& part) -> decltype(std::declval<std::ostream&>() << part, void()) {
  std::ostringstream out;
  out << part;
  *text += out.str();
}
#endif

// --- References to arrays ---

template <typename T>
class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <typename Container, typename Pointer = decltype(std::declval<const Container&>().data()),
            typename = std::enable_if_t<std::is_same_v<Pointer, T*> || std::is_same_v<Pointer, const T*>>>
  ArrayRef(const Container& container) : data_(container.data()), size_(container.size()) {}
  template <size_t N>
  constexpr ArrayRef(const T (&array)[N]) : data_(array), size_(N) {}
  constexpr ArrayRef(const std::initializer_list<T>& list)
      : data_(list.size() == 0 ? nullptr : list.begin()), size_(list.size()) {}

  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const {
    if (i >= size_) Raise(__FILE__, __LINE__, "ArrayRef: invalid index");
    return data_[i];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  ArrayRef<T> slice(size_t first, size_t count) const {
    if (first + count > size_) Raise(__FILE__, __LINE__, "ArrayRef: invalid slice");
    return {data_ + first, count};
  }
  ArrayRef<T> slice(size_t first) const { return slice(first, size_ - first); }
  bool equals(ArrayRef<T> other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i) {
      if (!(data_[i] == other.data_[i])) return false;
    }
    return true;
  }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
using IntArrayRef = ArrayRef<int64_t>;

template <typename T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <typename T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) {
  return !a.equals(b);
}
template <typename T>
bool operator==(const std::vector<T>& a, ArrayRef<T> b) {
  return ArrayRef<T>(a).equals(b);
}
template <typename T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) {
  return a.equals(ArrayRef<T>(b));
}
template <typename T>
void Append(std::string* text, ArrayRef<T> list) {
  *text += '[';
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) *text += ", ";
    Append(text, list[i]);
  }
  *text += ']';
}
// --- Devices, layouts, formats: with torch's numbers (checked in env/python/torch_table.cc) ---

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
enum class Layout : int8_t { Strided = 0, Sparse = 1 };
enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
constexpr Layout kStrided = Layout::Strided;

struct Device {
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  bool is_cuda() const { return type_ == DeviceType::CUDA; }
  bool is_cpu() const { return type_ == DeviceType::CPU; }
  std::string str() const {
    std::string text = type_ == DeviceType::CUDA ? "cuda" : type_ == DeviceType::CPU ? "cpu" : "device";
    return has_index() ? text + ":" + std::to_string(index_) : text;
  }

 private:
  DeviceType type_;
  DeviceIndex index_;
};
inline void Append(std::string* text, const Device& part) { *text += part.str(); }

// --- Element types ---

// Name, number in torch, C++ type.
#define KEVIN_TYPES(_) \
  _(Byte, 0, uint8_t)  \
  _(Char, 1, int8_t)   \
  _(Short, 2, int16_t) \
  _(Int, 3, int) _(Long, 4, int64_t) _(Float, 6, float) _(Double, 7, double) _(Bool, 11, bool)
#ifdef KEVIN_HEADERONLY
using c10::BFloat16;
using c10::Half;
#define KEVIN_SHORT_TYPES(_) _(Half, 5, Half) _(BFloat16, 15, BFloat16)
#else
#define KEVIN_SHORT_TYPES(_)
#endif
enum class ScalarType : int8_t {
  Byte = 0,
  Char = 1,
  Short = 2,
  Int = 3,
  Long = 4,
  Half = 5,
  Float = 6,
  Double = 7,
  Bool = 11,
  BFloat16 = 15
};

template <typename T>
struct CppTypeToScalarType;
template <ScalarType type>
struct ScalarTypeToCPPType;
#define KEVIN_MAP(name, number, cpp)                      \
  template <>                                             \
  struct CppTypeToScalarType<cpp> {                       \
    static constexpr ScalarType value = ScalarType::name; \
  };                                                      \
  template <>                                             \
  struct ScalarTypeToCPPType<ScalarType::name> {          \
    using type = cpp;                                     \
  };
KEVIN_TYPES(KEVIN_MAP)
KEVIN_SHORT_TYPES(KEVIN_MAP)
#undef KEVIN_MAP

inline const char* toString(ScalarType type) {
  switch (type) {
#define KEVIN_NAME(name, number, cpp) \
  case ScalarType::name:              \
    return #name;
    KEVIN_TYPES(KEVIN_NAME)
#undef KEVIN_NAME
    case ScalarType::Half:
      return "Half";
    case ScalarType::BFloat16:
      return "BFloat16";
  }
  return "another type";
}
inline void Append(std::string* text, ScalarType part) { *text += toString(part); }

// What Tensor::dtype() returns.
struct TypeMeta {
  TypeMeta(ScalarType type) : type_(type) {}
  ScalarType toScalarType() const { return type_; }
  size_t itemsize() const;
  const char* name() const { return toString(type_); }
  friend bool operator==(const TypeMeta& a, const TypeMeta& b) { return a.type_ == b.type_; }
  friend bool operator!=(const TypeMeta& a, const TypeMeta& b) { return a.type_ != b.type_; }
  friend bool operator==(const TypeMeta& a, ScalarType b) { return a.type_ == b; }
  friend bool operator!=(const TypeMeta& a, ScalarType b) { return a.type_ != b; }
  friend bool operator==(ScalarType a, const TypeMeta& b) { return a == b.type_; }
  friend bool operator!=(ScalarType a, const TypeMeta& b) { return a != b.type_; }

 private:
  ScalarType type_;
};

inline void Append(std::string* text, const TypeMeta& part) { *text += part.name(); }
inline size_t elementSize(ScalarType type) {
  switch (type) {
    case ScalarType::Double:
    case ScalarType::Long:
      return 8;
    case ScalarType::Float:
    case ScalarType::Int:
      return 4;
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::Short:
      return 2;
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Bool:
      return 1;
  }
  Raise(__FILE__, __LINE__, "elementSize: unknown type");
}
inline size_t TypeMeta::itemsize() const { return elementSize(type_); }
inline TypeMeta scalarTypeToTypeMeta(ScalarType type) { return type; }
inline bool isFloatingType(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::Double || type == ScalarType::Half ||
         type == ScalarType::BFloat16;
}

constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = ScalarType::Byte, kChar = ScalarType::Char,
                     kInt8 = ScalarType::Char, kShort = ScalarType::Short, kInt16 = ScalarType::Short,
                     kInt = ScalarType::Int, kInt32 = ScalarType::Int, kLong = ScalarType::Long,
                     kInt64 = ScalarType::Long, kHalf = ScalarType::Half, kFloat16 = ScalarType::Half,
                     kFloat = ScalarType::Float, kFloat32 = ScalarType::Float, kDouble = ScalarType::Double,
                     kFloat64 = ScalarType::Double, kBool = ScalarType::Bool,
                     kBFloat16 = ScalarType::BFloat16;

// --- Numbers ---

class Scalar {
 public:
  Scalar() : Scalar(int64_t{0}) {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      value_.kind = Value::kBool;
      value_.integer = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      value_.kind = Value::kDouble;
      value_.real = value;
    } else {
      value_.kind = Value::kInt;
      value_.integer = static_cast<int64_t>(value);
    }
  }
#ifdef KEVIN_HEADERONLY
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}
#endif
  template <typename T>
  T to() const {
    return value_.kind == Value::kDouble ? static_cast<T>(value_.real) : static_cast<T>(value_.integer);
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  bool toBool() const { return to<bool>(); }
  bool isFloatingPoint() const { return value_.kind == Value::kDouble; }
  const Value& value() const { return value_; }

 private:
  Value value_;
};

using std::make_optional;
using std::nullopt;
using std::nullopt_t;
using std::optional;

// --- Options of new tensors ---

struct TensorOptions {
  TensorOptions() = default;
  TensorOptions(ScalarType dtype) { value.dtype = static_cast<int32_t>(dtype); }
  TensorOptions(TypeMeta dtype) : TensorOptions(dtype.toScalarType()) {}
  TensorOptions(Device device) { SetDevice(device); }
  TensorOptions(DeviceType type) : TensorOptions(Device(type)) {}
  TensorOptions(Layout layout) { value.layout = static_cast<int32_t>(layout); }
  TensorOptions(MemoryFormat format) { value.memory_format = static_cast<int32_t>(format); }
  explicit TensorOptions(const OptionsValue& given) : value(given) {}

  TensorOptions dtype(ScalarType dtype) const {
    return With([&](OptionsValue& v) { v.dtype = static_cast<int32_t>(dtype); });
  }
  TensorOptions dtype(TypeMeta type) const { return dtype(type.toScalarType()); }
  template <typename T>
  TensorOptions dtype() const {
    return dtype(CppTypeToScalarType<T>::value);
  }
  TensorOptions device(Device device) const {
    TensorOptions made = *this;
    made.SetDevice(device);
    return made;
  }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(Device(type, index)); }
  TensorOptions device_index(int16_t index) const {
    return device(Device(DeviceType::CUDA, static_cast<DeviceIndex>(index)));
  }
  TensorOptions layout(Layout layout) const {
    return With([&](OptionsValue& v) { v.layout = static_cast<int32_t>(layout); });
  }
  TensorOptions requires_grad(bool is_required = true) const {
    return With([&](OptionsValue& v) { v.requires_grad = is_required; });
  }
  TensorOptions pinned_memory(bool is_pinned = true) const {
    return With([&](OptionsValue& v) { v.pinned = is_pinned; });
  }
  TensorOptions memory_format(MemoryFormat format) const {
    return With([&](OptionsValue& v) { v.memory_format = static_cast<int32_t>(format); });
  }
  Device device() const {
    return value.device_type < 0 ? Device(DeviceType::CPU)
                                 : Device(static_cast<DeviceType>(value.device_type),
                                          static_cast<DeviceIndex>(value.device_index));
  }

  OptionsValue value;

 private:
  void SetDevice(Device device) {
    value.device_type = static_cast<int32_t>(device.type());
    value.device_index = device.index();
  }
  template <typename Change>
  TensorOptions With(Change change) const {
    TensorOptions made = *this;
    change(made.value);
    return made;
  }
};

template <typename... Parts>
std::string TextOf(const Parts&... parts) {
  std::string text;
  (Append(&text, parts), ...);
  return text;
}

inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions requires_grad(bool is_required = true) {
  return TensorOptions().requires_grad(is_required);
}

}  // namespace kevin_torch
