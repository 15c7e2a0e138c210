#pragma once
// Tensor: a counted reference to torch's tensor, with the members that extensions use most. Members that compute call
// torch's operators by name; the rest are facts. What is not here makes the source compile with torch's own headers.

#include <kevin/basics.h>

namespace kevin_torch {

class Tensor;
using TensorList = ArrayRef<Tensor>;

#ifdef KEVIN_HEADERONLY
// --- Accessors: torch's own classes, with the array and the check of this folder ---

using torch::headeronly::DefaultPtrTraits;
#ifdef __CUDACC__
using torch::headeronly::RestrictPtrTraits;
#endif
template <size_t N, typename index_t>
struct IndexBoundsCheck {
  IndexBoundsCheck(index_t i) {
    if (i < 0 || i >= index_t{N})
      Raise(__FILE__, __LINE__, TextOf("Index ", i, " is not within bounds of a tensor of dimension ", N));
  }
};
template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
          typename index_t = int64_t>
using TensorAccessor = torch::headeronly::detail::TensorAccessor<IntArrayRef, T, N, PtrTraits, index_t>;
template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
          typename index_t = int64_t>
using GenericPackedTensorAccessor = torch::headeronly::detail::GenericPackedTensorAccessor<
    TensorAccessor<T, N - 1, PtrTraits, index_t>, IndexBoundsCheck<N, index_t>, T, N, PtrTraits, index_t>;
template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, PtrTraits, int32_t>;
template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, PtrTraits, int64_t>;

#endif

// --- Operators of torch ---

// Calls an operator by name; missing arguments at the end get the schema's defaults. `site` is a static of the caller.
// Result: void, Tensor, a tuple of Tensors.
template <typename Result, typename... Arguments>
Result Call(const void** site, const char* name, const char* overload, const Arguments&... arguments);

#define KEVIN_CALL(result, name, overload, ...)                       \
  {                                                                   \
    static const void* site = nullptr;                                \
    return Call<result>(&site, "aten::" name, overload, __VA_ARGS__); \
  }
#define KEVIN_IN_PLACE(name, overload, ...)                  \
  {                                                          \
    static const void* site = nullptr;                       \
    Call<void>(&site, "aten::" name, overload, __VA_ARGS__); \
    return const_cast<Tensor&>(*this);                       \
  }

// x.type(), which AT_DISPATCH took once.
struct DeprecatedTypeProperties {
  ScalarType type;
  bool cuda;
  ScalarType scalarType() const { return type; }
  bool is_cuda() const { return cuda; }
};

class Tensor {
 public:
  Tensor() = default;
  static Tensor Own(void* handle) {
    Tensor made;
    made.handle_ = handle;
    return made;
  }
  static Tensor Share(void* handle) {
    if (handle != nullptr) table->retain(handle);
    return Own(handle);
  }
  Tensor(const Tensor& other) : handle_(other.handle_) {
    if (handle_ != nullptr) table->retain(handle_);
  }
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(const Tensor& other) & {
    if (this != &other) *this = Tensor(other);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) table->release(handle_);
  }

  void* handle() const { return handle_; }
  void* unsafeGetTensorImpl() const { return handle_; }

  // --- Facts ---
  bool defined() const { return handle_ != nullptr; }
  bool has_storage() const { return defined(); }
  int64_t dim() const { return table->dim(Defined()); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return table->numel(Defined()); }
  int64_t size(int64_t dim) const { return table->size(Defined(), dim); }
  int64_t stride(int64_t dim) const { return table->stride(Defined(), dim); }
  IntArrayRef sizes() const { return {table->sizes(Defined()), static_cast<size_t>(dim())}; }
  IntArrayRef strides() const { return {table->strides(Defined()), static_cast<size_t>(dim())}; }
  int64_t storage_offset() const { return table->storage_offset(Defined()); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    return table->is_contiguous(Defined(), static_cast<int32_t>(format));
  }
  TensorOptions options() const { return TensorOptions(table->options(Defined())); }
  ScalarType scalar_type() const { return static_cast<ScalarType>(options().value.dtype); }
  TypeMeta dtype() const { return scalar_type(); }
  DeprecatedTypeProperties type() const { return {scalar_type(), is_cuda()}; }
  Device device() const { return options().device(); }
  Layout layout() const { return static_cast<Layout>(options().value.layout); }
  DeviceIndex get_device() const { return device().index(); }
  bool is_cuda() const { return options().value.device_type == static_cast<int32_t>(DeviceType::CUDA); }
  bool is_cpu() const { return options().value.device_type == static_cast<int32_t>(DeviceType::CPU); }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool requires_grad() const { return options().value.requires_grad == 1; }
  bool is_same(const Tensor& other) const { return handle_ == other.handle_; }
  int64_t element_size() const { return table->element_size(Defined()); }
  size_t itemsize() const { return static_cast<size_t>(element_size()); }
  size_t nbytes() const { return static_cast<size_t>(numel()) * itemsize(); }

  // --- Memory ---
  void* data_ptr() const { return table->mutable_data(Defined()); }
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return table->const_data(Defined()); }
  template <typename T>
  T* data_ptr() const {
    RequireType<std::remove_const_t<T>>();
    return static_cast<T*>(data_ptr());
  }
  template <typename T>
  T* data() const {
    return data_ptr<T>();
  }
  template <typename T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <typename T>
  const std::remove_const_t<T>* const_data_ptr() const {
    RequireType<std::remove_const_t<T>>();
    return static_cast<const std::remove_const_t<T>*>(const_data_ptr());
  }

#ifdef KEVIN_HEADERONLY
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    RequireDim(N);
    return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
  }
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() && = delete;

  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
            typename index_t = int64_t>
  GenericPackedTensorAccessor<T, N, PtrTraits, index_t> generic_packed_accessor() const& {
    RequireDim(N);
    return GenericPackedTensorAccessor<T, N, PtrTraits, index_t>(
        static_cast<typename PtrTraits<T>::PtrType>(data_ptr<T>()), sizes().data(), strides().data());
  }
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, PtrTraits, int32_t> packed_accessor32() const& {
    if (numel() > std::numeric_limits<int32_t>::max())
      Raise(__FILE__, __LINE__,
            "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
    return generic_packed_accessor<T, N, PtrTraits, int32_t>();
  }
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, PtrTraits, int64_t> packed_accessor64() const& {
    return generic_packed_accessor<T, N, PtrTraits, int64_t>();
  }
#endif

  // --- Operators ---
  Tensor clone(optional<MemoryFormat> format = nullopt) const
      KEVIN_CALL(Tensor, "clone", "", *this, format) Tensor& fill_(const Scalar& value) const
      KEVIN_IN_PLACE("fill_", "Scalar", *this, value) Tensor& zero_() const
      KEVIN_IN_PLACE("zero_", "", *this) Tensor
      contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    if (is_contiguous(format)) return *this;
    return clone(format);
  }
#ifdef KEVIN_OPERATORS
  template <typename T>
  T item() const {
    return item().to<T>();
  }
  Scalar item() const KEVIN_CALL(Scalar, "item", "", *this) Tensor detach() const
      KEVIN_CALL(Tensor, "detach", "", *this) Tensor
      to(ScalarType type, bool non_blocking = false, bool copy = false,
         optional<MemoryFormat> format = nullopt) const
      KEVIN_CALL(Tensor, "to", "dtype", *this, type, non_blocking, copy, format) Tensor
      to(TypeMeta type, bool non_blocking = false, bool copy = false) const {
    return to(type.toScalarType(), non_blocking, copy);
  }
  Tensor to(Device device, ScalarType type, bool non_blocking = false, bool copy = false,
            optional<MemoryFormat> format = nullopt) const
      KEVIN_CALL(Tensor, "to", "device", *this, device, type, non_blocking, copy, format) Tensor
      to(Device device, bool non_blocking = false, bool copy = false) const {
    return to(device, scalar_type(), non_blocking, copy);
  }
  Tensor to(DeviceType device, bool non_blocking = false, bool copy = false) const {
    return to(Device(device), scalar_type(), non_blocking, copy);
  }
  Tensor cuda() const { return to(DeviceType::CUDA); }
  Tensor cpu() const { return to(DeviceType::CPU); }

  Tensor view(IntArrayRef size) const KEVIN_CALL(Tensor, "view", "", *this, size) Tensor
      view_as(const Tensor& other) const KEVIN_CALL(Tensor, "view_as", "", *this, other) Tensor
      reshape(IntArrayRef shape) const KEVIN_CALL(Tensor, "reshape", "", *this, shape) Tensor
      reshape_as(const Tensor& other) const KEVIN_CALL(Tensor, "reshape_as", "", *this, other) Tensor
      flatten(int64_t first = 0, int64_t last = -1) const
      KEVIN_CALL(Tensor, "flatten", "using_ints", *this, first, last) Tensor
      expand(IntArrayRef size, bool implicit = false) const
      KEVIN_CALL(Tensor, "expand", "", *this, size, implicit) Tensor expand_as(const Tensor& other) const
      KEVIN_CALL(Tensor, "expand_as", "", *this, other) Tensor repeat(IntArrayRef repeats) const
      KEVIN_CALL(Tensor, "repeat", "", *this, repeats) Tensor t() const
      KEVIN_CALL(Tensor, "t", "", *this) Tensor transpose(int64_t a, int64_t b) const
      KEVIN_CALL(Tensor, "transpose", "int", *this, a, b) Tensor permute(IntArrayRef dims) const
      KEVIN_CALL(Tensor, "permute", "", *this, dims) Tensor squeeze() const
      KEVIN_CALL(Tensor, "squeeze", "", *this) Tensor squeeze(int64_t dim) const
      KEVIN_CALL(Tensor, "squeeze", "dim", *this, dim) Tensor unsqueeze(int64_t dim) const
      KEVIN_CALL(Tensor, "unsqueeze", "", *this, dim) Tensor select(int64_t dim, int64_t index) const
      KEVIN_CALL(Tensor, "select", "int", *this, dim, index) Tensor
      narrow(int64_t dim, int64_t start, int64_t length) const
      KEVIN_CALL(Tensor, "narrow", "", *this, dim, start, length) Tensor
      slice(int64_t dim = 0, optional<int64_t> start = nullopt, optional<int64_t> end = nullopt,
            int64_t step = 1) const KEVIN_CALL(Tensor, "slice", "Tensor", *this, dim, start, end, step) Tensor
      flip(IntArrayRef dims) const KEVIN_CALL(Tensor, "flip", "", *this, dims) Tensor
      operator[](int64_t index) const {
    return select(0, index);
  }

  Tensor sum(optional<ScalarType> type = nullopt) const KEVIN_CALL(Tensor, "sum", "", *this, type) Tensor
      sum(IntArrayRef dim, bool keepdim = false, optional<ScalarType> type = nullopt) const
      KEVIN_CALL(Tensor, "sum", "dim_IntList", *this, dim, keepdim, type) Tensor
      mean(optional<ScalarType> type = nullopt) const KEVIN_CALL(Tensor, "mean", "", *this, type) Tensor
      mean(IntArrayRef dim, bool keepdim = false, optional<ScalarType> type = nullopt) const
      KEVIN_CALL(Tensor, "mean", "dim", *this, dim, keepdim, type) Tensor max() const
      KEVIN_CALL(Tensor, "max", "", *this) Tensor min() const KEVIN_CALL(Tensor, "min", "", *this) Tensor
      amax(IntArrayRef dim = {}, bool keepdim = false) const
      KEVIN_CALL(Tensor, "amax", "", *this, dim, keepdim) Tensor
      softmax(int64_t dim, optional<ScalarType> type = nullopt) const
      KEVIN_CALL(Tensor, "softmax", "int", *this, dim, type) Tensor
      log_softmax(int64_t dim, optional<ScalarType> type = nullopt) const
      KEVIN_CALL(Tensor, "log_softmax", "int", *this, dim, type) Tensor
      logsumexp(IntArrayRef dim, bool keepdim = false) const
      KEVIN_CALL(Tensor, "logsumexp", "", *this, dim, keepdim) Tensor
      cumsum(int64_t dim, optional<ScalarType> type = nullopt) const
      KEVIN_CALL(Tensor, "cumsum", "", *this, dim, type)

          Tensor matmul(const Tensor& other) const KEVIN_CALL(Tensor, "matmul", "", *this, other) Tensor
      mm(const Tensor& other) const KEVIN_CALL(Tensor, "mm", "", *this, other) Tensor
      bmm(const Tensor& other) const KEVIN_CALL(Tensor, "bmm", "", *this, other)
#define KEVIN_UNARY(name)                                                    \
  Tensor name() const KEVIN_CALL(Tensor, #name, "", *this) Tensor& name##_() \
      const KEVIN_IN_PLACE(#name "_", "", *this)
          KEVIN_UNARY(relu) KEVIN_UNARY(sigmoid) KEVIN_UNARY(tanh) KEVIN_UNARY(exp) KEVIN_UNARY(log)
              KEVIN_UNARY(sqrt) KEVIN_UNARY(rsqrt) KEVIN_UNARY(abs) KEVIN_UNARY(neg)
#undef KEVIN_UNARY
#define KEVIN_BINARY(name)                                                                              \
  Tensor name(const Tensor& other) const KEVIN_CALL(Tensor, #name, "Tensor", *this, other) Tensor name( \
      const Scalar& other) const KEVIN_CALL(Tensor, #name, "Scalar", *this, other)                      \
      Tensor& name##_(const Tensor& other) const KEVIN_IN_PLACE(#name "_", "Tensor", *this, other)      \
          Tensor& name##_(const Scalar& other) const KEVIN_IN_PLACE(#name "_", "Scalar", *this, other)
                  KEVIN_BINARY(mul) KEVIN_BINARY(div)
#undef KEVIN_BINARY
                      Tensor add(const Tensor& other, const Scalar& alpha = 1) const
      KEVIN_CALL(Tensor, "add", "Tensor", *this, other, alpha) Tensor
      sub(const Tensor& other, const Scalar& alpha = 1) const
      KEVIN_CALL(Tensor, "sub", "Tensor", *this, other, alpha) Tensor
      add(const Scalar& other, const Scalar& alpha = 1) const
      KEVIN_CALL(Tensor, "add", "Scalar", *this, other, alpha) Tensor
      sub(const Scalar& other, const Scalar& alpha = 1) const
      KEVIN_CALL(Tensor, "sub", "Scalar", *this, other, alpha) Tensor& add_(const Tensor& other,
                                                                            const Scalar& alpha = 1) const
      KEVIN_IN_PLACE("add_", "Tensor", *this, other, alpha) Tensor& sub_(const Tensor& other,
                                                                         const Scalar& alpha = 1) const
      KEVIN_IN_PLACE("sub_", "Tensor", *this, other, alpha) Tensor& add_(const Scalar& other,
                                                                         const Scalar& alpha = 1) const
      KEVIN_IN_PLACE("add_", "Scalar", *this, other, alpha) Tensor& sub_(const Scalar& other,
                                                                         const Scalar& alpha = 1) const
      KEVIN_IN_PLACE("sub_", "Scalar", *this, other, alpha) Tensor pow(const Scalar& exponent) const
      KEVIN_CALL(Tensor, "pow", "Tensor_Scalar", *this,
                 exponent) Tensor& copy_(const Tensor& from, bool non_blocking = false) const
      KEVIN_IN_PLACE("copy_", "", *this, from, non_blocking) Tensor
      operator-() const {
    return neg();
  }
  Tensor& operator+=(const Tensor& other) & { return add_(other); }
  Tensor& operator+=(const Scalar& other) & { return add_(other); }
  Tensor& operator-=(const Tensor& other) & { return sub_(other); }
  Tensor& operator-=(const Scalar& other) & { return sub_(other); }
  Tensor& operator*=(const Tensor& other) & { return mul_(other); }
  Tensor& operator*=(const Scalar& other) & { return mul_(other); }
  Tensor& operator/=(const Tensor& other) & { return div_(other); }
  Tensor& operator/=(const Scalar& other) & { return div_(other); }
#endif

 private:
  const void* Defined() const {
    if (handle_ == nullptr)
      Raise(__FILE__, __LINE__, "tensor does not have a device, type or size: it is undefined");
    return handle_;
  }
  template <typename T>
  void RequireType() const {
    constexpr ScalarType kWanted = CppTypeToScalarType<T>::value;
    if (scalar_type() != kWanted)
      Raise(__FILE__, __LINE__,
            TextOf("expected scalar type ", toString(kWanted), " but found ", toString(scalar_type())));
  }
  void RequireDim(size_t count) const {
    if (dim() != static_cast<int64_t>(count))
      Raise(__FILE__, __LINE__, TextOf("TensorAccessor expected ", count, " dims but tensor has ", dim()));
  }

  void* handle_ = nullptr;
};

inline optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? make_optional(tensor.device()) : nullopt;
}

}  // namespace kevin_torch
