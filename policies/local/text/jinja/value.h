#pragma once
// Values of a template, the state of one rendering, and the operations on both. Internal to this folder.
//
// Values follow Python's rules. Copies are cheap: they share immutable data; only namespaces change. One
// rendering belongs to one thread.

#include <cstdint>
#include <ctime>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "policies/local/text/jinja/template.h"

namespace kevin::local::jinja {

class Value;
class Run;

// The value of an absent name or field: prints as nothing and is false; every other use fails.
struct Undefined {
  std::string what;  // "'x' is undefined"
};
struct None {};

// Immutable. `height`: the depth of nested lists, dicts and functions; set by Value.
struct List {
  std::vector<Value> items;
  bool tuple = false;
  int height = 0;
};

// Keeps the order of insertion. Look-up is linear: dicts in templates are small.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int height = 0;  // as a list's
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

// A function, macro or `loop`: can be called, and may have fields.
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value Call(Run& run, Arguments& arguments) = 0;
  virtual std::optional<Value> Field(std::string_view name) const;
  virtual int Height() const { return 0; }  // of the values it keeps
};

class Value {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Variant =
      std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Callable>>;

  Value() : data_(None{}) {}
  // Implicit, one for each kind.
  Value(Undefined undefined) : data_(std::move(undefined)) {}  // NOLINT(google-explicit-constructor)
  Value(bool value) : data_(value) {}                          // NOLINT(google-explicit-constructor)
  Value(int64_t value) : data_(value) {}                       // NOLINT(google-explicit-constructor)
  Value(int value) : data_(int64_t{value}) {}                  // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}                        // NOLINT(google-explicit-constructor)
  Value(std::string text);                                     // NOLINT(google-explicit-constructor)
  Value(std::string_view text) : Value(std::string(text)) {}   // NOLINT(google-explicit-constructor)
  Value(const char* text) : Value(std::string(text)) {}        // NOLINT(google-explicit-constructor)
  // Throw TemplateError where lists, dicts and functions nest more than 200 deep: freeing them recurses.
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

  int Height() const;
  bool Truth() const;
  const char* TypeName() const;  // Python's: "str", "list", ...

 private:
  Variant data_;
};

inline Value MakeList(std::vector<Value> items) { return List{std::move(items), false}; }
inline Value MakeTuple(std::vector<Value> items) { return List{std::move(items), true}; }

bool Equal(const Value& a, const Value& b, int depth = 0);
// <0, 0 or >0. Throws TemplateError for two values that Python cannot order.
int Compare(const Value& a, const Value& b, const char* operation, int depth = 0);

// The names of one block. Look-up continues in the enclosing scopes.
struct Scope {
  std::shared_ptr<Scope> around;
  std::vector<std::pair<std::string, Value>> names;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, const Value& value);
};

// One rendering: the current scope, the output so far, the rest of the budget.
class Run {
 public:
  Run(const Limits& limits, Clock now);
  ~Run();
  Run(const Run&) = delete;

  // Throws TemplateError when no steps are left.
  void Step(size_t steps = 1);
  // Call before producing text of that size. Throws TemplateError when the text, or all text together, is too
  // large.
  void Reserve(size_t bytes);
  void Write(std::string_view text);

  const Limits& limits() const { return limits_; }
  std::tm LocalTime() const { return now_(); }

  std::shared_ptr<Scope> scope;
  std::string output;
  int calls = 0;  // nesting of macro calls
  int depth = 0;  // nesting of evaluations

  // Namespaces and captured scopes may contain themselves; ~Run empties them.
  std::shared_ptr<Namespace> NewNamespace();
  void Captured(const std::shared_ptr<Scope>& captured) { captured_.push_back(captured); }

 private:
  const Limits limits_;
  const Clock now_;
  size_t steps_left_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> captured_;
};

// A new scope during its lifetime.
class Within {
 public:
  explicit Within(Run& run) : Within(run, run.scope) {}
  Within(Run& run, std::shared_ptr<Scope> around);
  ~Within() { run_.scope = std::move(before_); }

 private:
  Run& run_;
  std::shared_ptr<Scope> before_;
};

// Collects the output during its lifetime.
class Capture {
 public:
  explicit Capture(Run& run) : run_(run) { run.output.swap(before_); }
  ~Capture() { run_.output.swap(before_); }
  std::string Take() { return std::move(run_.output); }

 private:
  Run& run_;
  std::string before_;
};

// One more level of evaluation. Throws TemplateError before the stack overflows.
class Descent {
 public:
  explicit Descent(Run& run);
  ~Descent() { --run_.depth; }

 private:
  Run& run_;
};

class Function : public Callable {
 public:
  using Body = std::function<Value(Run&, Arguments&)>;
  Function(Body body, int height) : body_(std::move(body)), height_(height) {}
  Value Call(Run& run, Arguments& arguments) override { return body_(run, arguments); }
  int Height() const override { return height_; }

 private:
  Body body_;
  int height_;
};
Value MakeFunction(Function::Body body, int height = 0);  // height: of the values it keeps

// The arguments in the order of `names`, null where not given. Throws TemplateError when there are fewer than
// `required`, too many or unknown ones. They live as long as `arguments`.
std::vector<const Value*> Bind(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, size_t required = 0);
int64_t IntegerOr(const Value* value, int64_t otherwise);  // null: otherwise; throws for other kinds
const std::string& TextOf(const Value& value);             // throws for other kinds

[[noreturn]] void Fail(const std::string& reason);
// Throws if `value` is undefined.
const Value& Defined(const Value& value);

// Operators, fields and indices: Python's rules, with Jinja's rules for absent names.

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,  //
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

Value Apply(Run& run, Operator op, const Value& left, const Value& right);
bool Contains(Run& run, const Value& container, const Value& item);

// The elements of an iteration: items, keys or characters; none for an undefined value.
std::vector<Value> ItemsOf(Run& run, const Value& value);
size_t LengthOf(Run& run, const Value& value);

Value FieldOf(Run& run, const Value& object, std::string_view name);
Value ItemOf(Run& run, const Value& object, const Value& index);
Value SliceOf(Run& run, const Value& object, const Value* from, const Value* to, const Value* step);
Value CallValue(Run& run, const Value& callee, Arguments& arguments);

// A method of a string, list or dict, bound to it; nullopt: no such method.
std::optional<Value> MethodOf(const Value& object, std::string_view name);

Value ApplyFilter(Run& run, std::string_view name, const Value& subject, Arguments& arguments);
bool ApplyTest(Run& run, std::string_view name, const Value& subject, Arguments& arguments);

// "{}".format(...) and "%s" % ...
std::string FormatBraces(Run& run, std::string_view format, const Arguments& arguments);
std::string FormatPercent(Run& run, std::string_view format, const Value& arguments);

// Values as Python prints them.

std::string Str(Run& run, const Value& value);   // as printed
std::string Repr(Run& run, const Value& value);  // as within a printed list

// Python's json.dumps with ensure_ascii off, as in transformers.
struct JsonLayout {
  std::optional<std::string> indent;  // of one level; absent: all in one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ascii = false, sort_keys = false;
};
std::string ToJson(Run& run, const Value& value, const JsonLayout& layout);

std::string FloatText(double number);  // repr(float)

// Operations of Python's strings, used by methods and filters. Texts are valid UTF-8.

enum class Side { kLeft, kRight, kBoth };
// Without white space at the ends, or without any of `characters`.
std::string_view Stripped(std::string_view text, Side side, const std::string* characters = nullptr);
// `most` splits; -1: all. Without separator: by runs of white space.
std::vector<Value> SplitText(Run& run, const std::string& text, const std::string* separator, int64_t most,
                             bool from_right);
std::vector<Value> SplitLines(Run& run, const std::string& text, bool keep_ends = false);
std::string Replaced(Run& run, const std::string& text, const std::string& from, const std::string& to,
                     int64_t most);
std::string Capitalized(std::string_view text);
std::string Titled(std::string_view text);  // str.title
std::string Justified(Run& run, const std::string& text, int64_t width, Side where, const std::string& fill);
std::string Joined(Run& run, const std::vector<Value>& items, const std::string& separator, bool convert);

// Filters, in three tables. A filter gets the value on its left and its arguments.

using Filter = Value (*)(Run&, const Value& subject, Arguments&);
using FilterList = std::map<std::string_view, Filter>;

const FilterList& TextFilters();
const FilterList& ListFilters();
const FilterList& ValueFilters();  // numbers, tojson, default, ...

}  // namespace kevin::local::jinja
