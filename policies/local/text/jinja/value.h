#pragma once
// The values of a template: Python's, as far as templates can tell. Copies are cheap and share what cannot be
// changed anyway; only namespaces change. One rendering belongs to one thread.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kevin::local::jinja {

class Value;
class Run;

// A name or field that is not there: prints as nothing, is false; anything else with it fails.
struct Undefined {
  std::string what;  // "'x' is undefined"
};
struct None {};

struct List {
  std::vector<Value> items;
  bool tuple = false;
};

// Keeps the order in which keys came. Looked up one after another: templates deal with small ones.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, const Value& value);
};

struct Namespace {
  Dict fields;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What can be called, and may have fields too (loop).
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value Call(Run& run, Arguments& arguments) = 0;
  virtual std::optional<Value> Field(std::string_view name) const;
};

class Value {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Variant =
      std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Callable>>;

  Value() : data_(None{}) {}
  // Not explicit, one for each kind: values are made everywhere.
  Value(Undefined undefined) : data_(std::move(undefined)) {}           // NOLINT(google-explicit-constructor)
  Value(bool value) : data_(value) {}                                   // NOLINT(google-explicit-constructor)
  Value(int64_t value) : data_(value) {}                                // NOLINT(google-explicit-constructor)
  Value(int value) : data_(int64_t{value}) {}                           // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}                                 // NOLINT(google-explicit-constructor)
  Value(std::string text);                                              // NOLINT(google-explicit-constructor)
  Value(std::string_view text) : Value(std::string(text)) {}            // NOLINT(google-explicit-constructor)
  Value(const char* text) : Value(std::string(text)) {}                 // NOLINT(google-explicit-constructor)
  Value(List list);                                                     // NOLINT(google-explicit-constructor)
  Value(Dict dict);                                                     // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Callable> callable)
      : data_(std::move(callable)) {}  // NOLINT(google-explicit-constructor)

  // Throws TemplateError on numbers that do not fit and on nesting deeper than 200.
  static Value FromJson(const nlohmann::ordered_json& json, int depth = 0);

  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  bool IsUndefined() const { return Is<Undefined>(); }
  bool IsNone() const { return Is<None>(); }
  bool IsText() const { return Is<Text>(); }
  bool IsInteger() const { return Is<int64_t>() || Is<bool>(); }  // as in Python
  bool IsNumber() const { return IsInteger() || Is<double>(); }

  // Null where it is of another kind.
  const std::string* AsText() const;
  const List* AsList() const;
  const Dict* AsDict() const;
  Namespace* AsNamespace() const;
  Callable* AsCallable() const;
  int64_t Integer() const;  // of an integer
  double Number() const;    // of a number
  const Variant& data() const { return data_; }

  bool Truth() const;
  const char* TypeName() const;  // Python's: "str", "list", ...

 private:
  Variant data_;
};

inline Value MakeList(std::vector<Value> items) { return List{std::move(items), false}; }
inline Value MakeTuple(std::vector<Value> items) { return List{std::move(items), true}; }

bool Equal(const Value& a, const Value& b, int depth = 0);
// <0, 0 or >0. Throws TemplateError where Python cannot order the two.
int Compare(const Value& a, const Value& b, const char* operation, int depth = 0);

}  // namespace kevin::local::jinja
