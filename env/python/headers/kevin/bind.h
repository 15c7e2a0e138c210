#pragma once
// PYBIND11_MODULE without pybind11: a table of functions that env/python/torch_binding.cc makes callable. The simple form
// only: m.def("name", &function, "text", py::arg("x"), ...), without overloads, default values and classes.

#include <kevin/macros.h>

namespace kevin_torch {
namespace bind {

// Sets `out` from a Python object as pybind11 and torch convert it. False: another type.
inline bool From(void* object, Tensor* out) {
  void* handle = table->to_tensor(object);
  if (handle == nullptr) return false;
  *out = Tensor::Own(handle);
  return true;
}
template <typename T>
std::enable_if_t<std::is_integral_v<T>, bool> From(void* object, T* out) {
  if constexpr (std::is_same_v<T, bool>) {
    return table->to_bool(object, out);
  } else {
    int64_t value = 0;
    if (!table->to_integer(object, &value)) return false;
    if constexpr (std::is_unsigned_v<T>) {
      if (value < 0 || static_cast<uint64_t>(value) > std::numeric_limits<T>::max()) return false;
    } else if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
      return false;
    }
    *out = static_cast<T>(value);
    return true;
  }
}
template <typename T>
std::enable_if_t<std::is_floating_point_v<T>, bool> From(void* object, T* out) {
  double value = 0;
  if (!table->to_real(object, &value)) return false;
  *out = static_cast<T>(value);
  return true;
}
inline bool From(void* object, std::string* out) {
  size_t bytes = 0;
  const char* text = table->to_text(object, &bytes);
  if (text == nullptr) return false;
  out->assign(text, bytes);
  return true;
}
template <typename T>
bool From(void* object, std::vector<T>* out) {
  const int64_t count = table->sequence_size(object);
  if (count < 0) return false;
  out->resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    T each{};
    if (!From(table->sequence_item(object, i), &each)) return false;
    (*out)[static_cast<size_t>(i)] = std::move(each);
  }
  return true;
}
template <typename T>
bool From(void* object, optional<T>* out) {
  if (table->is_none(object)) {
    out->reset();
    return true;
  }
  T value{};
  if (!From(object, &value)) return false;
  *out = std::move(value);
  return true;
}

// What keeps an argument of type T alive during the call.
template <typename T>
struct Kept {
  T value{};
  bool Take(void* object) { return From(object, &value); }
  T& Get() { return value; }
};
template <typename T>
struct Kept<ArrayRef<T>> {
  std::vector<T> value;
  bool Take(void* object) { return From(object, &value); }
  ArrayRef<T> Get() { return value; }
};

inline void* To(const Tensor& tensor) { return table->from_tensor(tensor.handle()); }
template <typename T>
std::enable_if_t<std::is_arithmetic_v<T>, void*> To(T value) {
  if constexpr (std::is_same_v<T, bool>)
    return table->from_bool(value);
  else if constexpr (std::is_floating_point_v<T>)
    return table->from_real(value);
  else
    return table->from_integer(static_cast<int64_t>(value));
}
inline void* To(const std::string& text) { return table->from_text(text.data(), text.size()); }
template <typename T>
void* To(const std::vector<T>& list) {
  std::vector<void*> objects;
  for (const auto& each : list) objects.push_back(To(each));
  return table->from_sequence(objects.data(), objects.size(), false);
}
template <typename... Each>
void* To(const std::tuple<Each...>& tuple) {
  return std::apply(
      [](const auto&... each) {
        void* objects[] = {To(each)..., nullptr};
        return table->from_sequence(objects, sizeof...(each), true);
      },
      tuple);
}
template <typename First, typename Second>
void* To(const std::pair<First, Second>& pair) {
  return To(std::make_tuple(pair.first, pair.second));
}

template <typename Result, typename... Arguments, size_t... I>
bool CallWith(Result (*function)(Arguments...), void* const* objects, void** result,
              std::index_sequence<I...>) {
  std::tuple<Kept<std::decay_t<Arguments>>...> kept;
  if (!(std::get<I>(kept).Take(objects[I]) && ...)) return false;
  if constexpr (std::is_void_v<Result>) {
    function(static_cast<Arguments>(std::get<I>(kept).Get())...);
    *result = table->from_none();
  } else {
    *result = To(function(static_cast<Arguments>(std::get<I>(kept).Get())...));
  }
  return true;
}
template <typename Result, typename... Arguments>
bool CallBound(const BoundFunction* self, void* const* objects, void** result) {
  return CallWith(reinterpret_cast<Result (*)(Arguments...)>(self->function), objects, result,
                  std::index_sequence_for<Arguments...>());
}

// py::arg("x") and "x"_a.
struct Argument {
  explicit constexpr Argument(const char* given) : name(given) {}
  const char* name;
};

class Module {
 public:
  template <typename Result, typename... Arguments, typename... Extra>
  Module& def(const char* name, Result (*function)(Arguments...), const Extra&... extra) {
    auto* made = new Named;  // lives as long as the extension
    Named& entry = *made;
    (Read(extra, &entry), ...);
    entry.name = name;
    entry.function = {nullptr,
                      nullptr,
                      &CallBound<Result, Arguments...>,
                      reinterpret_cast<void (*)()>(function),
                      static_cast<int32_t>(sizeof...(Arguments)),
                      nullptr};
    if (!entry.keywords.empty() && entry.keywords.size() != sizeof...(Arguments))
      Raise(__FILE__, __LINE__, "names of some arguments only");
    entries_.push_back(made);
    return *this;
  }
  template <typename Lambda, typename... Extra>
  auto def(const char* name, Lambda lambda, const Extra&... extra) -> decltype(+lambda, *this) {
    return def(name, +lambda, extra...);
  }
  std::string& doc() { return doc_; }

  const BoundModule* Finish() {
    for (Named* entry : entries_) {
      entry->function.name = entry->name.c_str();
      entry->function.doc = entry->doc.c_str();
      entry->function.names = entry->keywords.empty() ? nullptr : entry->keywords.data();
      functions_.push_back(entry->function);
    }
    made_ = {kTableVersion, functions_.data(), functions_.size()};
    return &made_;
  }

 private:
  struct Named {
    std::string name, doc;
    std::vector<const char*> keywords;
    BoundFunction function{};
  };
  static void Read(const char* text, Named* entry) { entry->doc = text; }
  static void Read(const Argument& argument, Named* entry) { entry->keywords.push_back(argument.name); }

  std::vector<Named*> entries_;
  std::vector<BoundFunction> functions_;
  std::string doc_;
  BoundModule made_{};
};

}  // namespace bind
}  // namespace kevin_torch

namespace pybind11 {
using arg = kevin_torch::bind::Argument;
using module_ = kevin_torch::bind::Module;
}  // namespace pybind11
namespace py = pybind11;

// `name` must be an identifier, as with pybind11.
#define KEVIN_MODULE_OF(name, variable)                                                               \
  static void KevinFill_##name(::kevin_torch::bind::Module& variable);                                \
  extern "C" __attribute__((visibility("default"))) const ::kevin_torch::BoundModule* KevinModule() { \
    static ::kevin_torch::bind::Module made;                                                          \
    static const ::kevin_torch::BoundModule* const module = (KevinFill_##name(made), made.Finish());  \
    return module;                                                                                    \
  }                                                                                                   \
  static void KevinFill_##name(::kevin_torch::bind::Module& variable)
#define PYBIND11_MODULE(name, variable) KEVIN_MODULE_OF(name, variable)
