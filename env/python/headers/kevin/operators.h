#pragma once
// How operators of torch are called, and those that are functions.

#include <kevin/tensor.h>

namespace kevin_torch {
namespace calls {

static_assert(sizeof(Tensor) == sizeof(void*));

inline Value Of(Value::Kind kind, int64_t integer) {
  Value value;
  value.kind = kind;
  value.integer = integer;
  return value;
}
inline Value Of(Value::Kind kind, const void* pointer, size_t count) {
  Value value;
  value.kind = kind;
  value.pointer = pointer;
  value.count = static_cast<int64_t>(count);
  return value;
}
inline Value ValueOf(nullopt_t) { return {}; }
inline Value ValueOf(const Tensor& tensor) {
  return tensor.defined() ? Of(Value::kTensor, tensor.handle(), 0) : Value{};
}
inline Value ValueOf(const Scalar& scalar) { return scalar.value(); }
inline Value ValueOf(bool flag) { return Of(Value::kBool, flag); }
inline Value ValueOf(int64_t number) { return Of(Value::kInt, number); }
inline Value ValueOf(double number) { return Scalar(number).value(); }
inline Value ValueOf(ScalarType type) { return Of(Value::kInt, static_cast<int64_t>(type)); }
inline Value ValueOf(MemoryFormat format) { return Of(Value::kInt, static_cast<int64_t>(format)); }
inline Value ValueOf(const Device& device) {
  Value value = Of(Value::kDevice, static_cast<int64_t>(device.type()));
  value.count = device.index();
  return value;
}
inline Value ValueOf(const char* text) { return Of(Value::kText, text, std::strlen(text)); }
inline Value ValueOf(IntArrayRef list) { return Of(Value::kInts, list.data(), list.size()); }
inline Value ValueOf(TensorList list) { return Of(Value::kTensors, list.data(), list.size()); }
template <typename T>
Value ValueOf(const optional<T>& given) {
  return given ? ValueOf(*given) : Value{};
}

inline void Take(const Value* results, size_t count, Tensor* out) {
  if (count < 1 || results[0].kind != Value::kTensor)
    Raise(__FILE__, __LINE__, "an operator returned no tensor");
  *out = Tensor::Own(const_cast<void*>(results[0].pointer));
}
inline void Take(const Value* results, size_t count, Scalar* out) {
  if (count < 1) Raise(__FILE__, __LINE__, "an operator returned no number");
  if (results[0].kind == Value::kDouble) *out = Scalar(results[0].real);
  if (results[0].kind == Value::kInt) *out = Scalar(results[0].integer);
  if (results[0].kind == Value::kBool) *out = Scalar(results[0].integer != 0);
}
#ifdef KEVIN_OPERATORS
template <typename... Each>
void Take(const Value* results, size_t, std::tuple<Each...>* out) {
  std::apply([&](auto&... each) { (Take(results++, 1, &each), ...); }, *out);
}
#endif

}  // namespace calls

template <typename Result, typename... Arguments>
Result Call(const void** site, const char* name, const char* overload, const Arguments&... arguments) {
  constexpr size_t kMost = 4;
  const Value values[] = {calls::ValueOf(arguments)...};
  Value results[kMost];
  const size_t count = table->call(site, name, overload, values, sizeof...(arguments), results, kMost);
  if constexpr (std::is_void_v<Result>) {
    for (size_t i = 0; i < count; ++i) {
      if (results[i].kind == Value::kTensor) table->release(const_cast<void*>(results[i].pointer));
    }
  } else {
    Result result;
    calls::Take(results, count, &result);
    return result;
  }
}

// --- New tensors ---

inline Tensor empty(IntArrayRef size, const TensorOptions& options = {},
                    optional<MemoryFormat> format = nullopt) {
  const TensorOptions used = format ? options.memory_format(*format) : options;
  return Tensor::Own(table->empty(size.data(), size.size(), &used.value));
}
inline Tensor full(IntArrayRef size, const Scalar& value, const TensorOptions& options = {}) {
  TensorOptions used = options;
  if (used.value.dtype < 0 && !value.isFloatingPoint())
    used = used.dtype(value.value().kind == Value::kBool ? kBool : kLong);
  const Tensor made = empty(size, used);
  made.fill_(value);
  return made;
}
inline Tensor zeros(IntArrayRef size, const TensorOptions& options = {}) {
  const Tensor made = empty(size, options);
  made.zero_();
  return made;
}
inline Tensor ones(IntArrayRef size, const TensorOptions& options = {}) {
  const Tensor made = empty(size, options);
  made.fill_(1);
  return made;
}
namespace calls {
inline Tensor EmptyLike(const Tensor& self, const TensorOptions& options, optional<MemoryFormat> format) {
  static const void* site = nullptr;
  const OptionsValue& given = options.value;
  const auto optional_of = [](int32_t value) { return value < 0 ? Value{} : Of(Value::kInt, value); };
  const Value none;
  if (!format && given.memory_format >= 0) format = static_cast<MemoryFormat>(given.memory_format);
  const Value values[] = {ValueOf(self),
                          optional_of(given.dtype),
                          optional_of(given.layout),
                          given.device_type < 0 ? none : ValueOf(options.device()),
                          given.pinned < 0 ? none : ValueOf(given.pinned == 1),
                          ValueOf(format)};
  Value result;
  Tensor made;
  Take(&result, table->call(&site, "aten::empty_like", "", values, 6, &result, 1), &made);
  return made;
}
}  // namespace calls
inline Tensor empty_like(const Tensor& self, const TensorOptions& options = {},
                         optional<MemoryFormat> format = nullopt) {
  return calls::EmptyLike(self, options, format);
}
inline Tensor zeros_like(const Tensor& self, const TensorOptions& options = {},
                         optional<MemoryFormat> format = nullopt) {
  const Tensor made = calls::EmptyLike(self, options, format);
  made.zero_();
  return made;
}
inline Tensor ones_like(const Tensor& self, const TensorOptions& options = {},
                        optional<MemoryFormat> format = nullopt) {
  const Tensor made = calls::EmptyLike(self, options, format);
  made.fill_(1);
  return made;
}
inline Tensor full_like(const Tensor& self, const Scalar& value, const TensorOptions& options = {},
                        optional<MemoryFormat> format = nullopt) {
  const Tensor made = calls::EmptyLike(self, options, format);
  made.fill_(value);
  return made;
}

#ifdef KEVIN_OPERATORS
// --- Functions ---

#define KEVIN_FUNCTION_OF_MEMBER(name)                               \
  template <typename... Arguments>                                   \
  auto name(const Tensor& self, Arguments&&... arguments)            \
      ->decltype(self.name(std::forward<Arguments>(arguments)...)) { \
    return self.name(std::forward<Arguments>(arguments)...);         \
  }
KEVIN_FUNCTION_OF_MEMBER(relu)
KEVIN_FUNCTION_OF_MEMBER(sigmoid)
KEVIN_FUNCTION_OF_MEMBER(tanh)
KEVIN_FUNCTION_OF_MEMBER(exp)
KEVIN_FUNCTION_OF_MEMBER(log)
KEVIN_FUNCTION_OF_MEMBER(sqrt)
KEVIN_FUNCTION_OF_MEMBER(rsqrt)
KEVIN_FUNCTION_OF_MEMBER(abs)
KEVIN_FUNCTION_OF_MEMBER(neg)
KEVIN_FUNCTION_OF_MEMBER(matmul)
KEVIN_FUNCTION_OF_MEMBER(mm)
KEVIN_FUNCTION_OF_MEMBER(bmm)
KEVIN_FUNCTION_OF_MEMBER(transpose)
KEVIN_FUNCTION_OF_MEMBER(squeeze)
KEVIN_FUNCTION_OF_MEMBER(unsqueeze)
KEVIN_FUNCTION_OF_MEMBER(flatten)
KEVIN_FUNCTION_OF_MEMBER(clone)
KEVIN_FUNCTION_OF_MEMBER(softmax)
KEVIN_FUNCTION_OF_MEMBER(log_softmax)
KEVIN_FUNCTION_OF_MEMBER(cumsum)
KEVIN_FUNCTION_OF_MEMBER(add)
KEVIN_FUNCTION_OF_MEMBER(sub)
KEVIN_FUNCTION_OF_MEMBER(mul)
KEVIN_FUNCTION_OF_MEMBER(div)
KEVIN_FUNCTION_OF_MEMBER(pow)
#undef KEVIN_FUNCTION_OF_MEMBER

inline Tensor reshape(const Tensor& self, IntArrayRef shape) { return self.reshape(shape); }
inline Tensor permute(const Tensor& self, IntArrayRef dims) { return self.permute(dims); }
inline Tensor sum(const Tensor& self, optional<ScalarType> type = nullopt) { return self.sum(type); }
inline Tensor sum(const Tensor& self, IntArrayRef dim, bool keepdim = false,
                  optional<ScalarType> type = nullopt) {
  return self.sum(dim, keepdim, type);
}
inline Tensor mean(const Tensor& self, optional<ScalarType> type = nullopt) { return self.mean(type); }
inline Tensor mean(const Tensor& self, IntArrayRef dim, bool keepdim = false,
                   optional<ScalarType> type = nullopt) {
  return self.mean(dim, keepdim, type);
}
inline Tensor logsumexp(const Tensor& self, IntArrayRef dim, bool keepdim = false) {
  return self.logsumexp(dim, keepdim);
}
inline Tensor cat(TensorList tensors, int64_t dim = 0)
    KEVIN_CALL(Tensor, "cat", "", tensors, dim) inline Tensor stack(TensorList tensors, int64_t dim = 0)
        KEVIN_CALL(Tensor, "stack", "", tensors, dim) inline Tensor
    addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
          const Scalar& alpha = 1) KEVIN_CALL(Tensor, "addmm", "", self, a, b, beta, alpha) inline Tensor
    linear(const Tensor& input, const Tensor& weight, const optional<Tensor>& bias = {})
        KEVIN_CALL(Tensor, "linear", "", input, weight, bias) inline Tensor
    gelu(const Tensor& self, const char* approximate = "none")
        KEVIN_CALL(Tensor, "gelu", "", self, approximate)
#define KEVIN_CONVOLUTION(name, ones, zeros)                                                              \
  inline Tensor name(const Tensor& input, const Tensor& weight, const optional<Tensor>& bias = {},        \
                     IntArrayRef stride = ones, IntArrayRef padding = zeros, IntArrayRef dilation = ones, \
                     int64_t groups = 1)                                                                  \
      KEVIN_CALL(Tensor, #name, "", input, weight, bias, stride, padding, dilation, groups)
            KEVIN_CONVOLUTION(conv1d, int64_t{1}, int64_t{0})
                KEVIN_CONVOLUTION(conv2d, int64_t{1}, int64_t{0})
                    KEVIN_CONVOLUTION(conv3d, int64_t{1}, int64_t{0})
#undef KEVIN_CONVOLUTION
#define KEVIN_TRANSPOSED(name, overload)                                                                \
  inline Tensor name(const Tensor& input, const Tensor& weight, const optional<Tensor>& bias = {},      \
                     IntArrayRef stride = int64_t{1}, IntArrayRef padding = int64_t{0},                 \
                     IntArrayRef output_padding = int64_t{0}, int64_t groups = 1,                       \
                     IntArrayRef dilation = int64_t{1})                                                 \
      KEVIN_CALL(Tensor, #name, overload, input, weight, bias, stride, padding, output_padding, groups, \
                 dilation)
                        KEVIN_TRANSPOSED(conv_transpose1d, "") KEVIN_TRANSPOSED(conv_transpose2d, "input")
                            KEVIN_TRANSPOSED(conv_transpose3d, "input")
#undef KEVIN_TRANSPOSED

#define KEVIN_SIGN(sign, name)                                                        \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return a.name(b); } \
  inline Tensor operator sign(const Tensor& a, const Scalar& b) { return a.name(b); }
                                KEVIN_SIGN(+, add) KEVIN_SIGN(-, sub) KEVIN_SIGN(*, mul) KEVIN_SIGN(/, div)
#undef KEVIN_SIGN
                                    inline Tensor
                                    operator+(const Scalar& a, const Tensor& b) {
  return b.add(a);
}
inline Tensor operator*(const Scalar& a, const Tensor& b) { return b.mul(a); }

#endif

inline Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {}) {
  return Tensor::Own(table->from_memory(data, sizes.data(), sizes.size(), &options.value));
}

}  // namespace kevin_torch
