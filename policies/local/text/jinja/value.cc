#include "policies/local/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "policies/local/text/jinja/template.h"

namespace kevin::local::jinja {

namespace {

constexpr int kDeepestValue = 200;

void CheckDepth(int depth) {
  if (depth > kDeepestValue) throw TemplateError("a value is nested too deep");
}

}  // namespace

const Value* Dict::Find(const Value& key) const {
  if (const std::string* text = key.AsText()) return Find(std::string_view(*text));
  for (const auto& [k, value] : items) {
    if (Equal(k, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [k, value] : items) {
    if (const std::string* text = k.AsText(); text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

void Dict::Set(const Value& key, const Value& value) {
  if (const Value* found = Find(key)) {
    *const_cast<Value*>(found) = value;
  } else {
    items.emplace_back(key, value);
  }
}

std::optional<Value> Callable::Field(std::string_view) const { return std::nullopt; }

Value::Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
Value::Value(List list) {
  for (const Value& item : list.items) list.height = std::max(list.height, item.Height() + 1);
  CheckDepth(list.height);
  data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
  for (const auto& [key, value] : dict.items) {
    dict.height = std::max({dict.height, key.Height() + 1, value.Height() + 1});
  }
  CheckDepth(dict.height);
  data_ = std::make_shared<const Dict>(std::move(dict));
}

int Value::Height() const {
  if (const List* list = AsList()) return list->height;
  if (const Dict* dict = AsDict()) return dict->height;
  if (const Callable* callable = AsCallable()) return callable->Height();
  return 0;
}

Value Value::FromJson(const nlohmann::ordered_json& json, int depth) {
  CheckDepth(depth);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX)
        throw TemplateError("the number " + json.dump() + " is too large");
      return json.get<int64_t>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return json.get<std::string>();
    case Type::array: {
      List list;
      for (const auto& item : json) list.items.push_back(FromJson(item, depth + 1));
      return list;
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.items.emplace_back(key, FromJson(item, depth + 1));
      return dict;
    }
    default:
      return {};
  }
}

const std::string* Value::AsText() const {
  const Text* text = std::get_if<Text>(&data_);
  return text == nullptr ? nullptr : text->get();
}

const List* Value::AsList() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list == nullptr ? nullptr : list->get();
}

const Dict* Value::AsDict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return dict == nullptr ? nullptr : dict->get();
}

Namespace* Value::AsNamespace() const {
  const auto* space = std::get_if<std::shared_ptr<Namespace>>(&data_);
  return space == nullptr ? nullptr : space->get();
}

Callable* Value::AsCallable() const {
  const auto* callable = std::get_if<std::shared_ptr<Callable>>(&data_);
  return callable == nullptr ? nullptr : callable->get();
}

int64_t Value::Integer() const { return Is<bool>() ? std::get<bool>(data_) : std::get<int64_t>(data_); }

double Value::Number() const {
  return IsInteger() ? static_cast<double>(Integer()) : std::get<double>(data_);
}

bool Value::Truth() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return Number() != 0;
  if (const std::string* text = AsText()) return !text->empty();
  if (const List* list = AsList()) return !list->items.empty();
  if (const Dict* dict = AsDict()) return !dict->items.empty();
  return true;
}

const char* Value::TypeName() const {
  if (const List* list = AsList()) return list->tuple ? "tuple" : "list";
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool", "int",       "float",
                                           "str",       "list",     "dict", "Namespace", "function"};
  return kNames[data_.index()];
}

bool Equal(const Value& a, const Value& b, int depth) {
  CheckDepth(depth);
  if (a.IsInteger() && b.IsInteger()) return a.Integer() == b.Integer();
  if (a.IsNumber() && b.IsNumber()) return a.Number() == b.Number();
  if (a.data().index() != b.data().index()) return false;
  if (a.IsText()) return *a.AsText() == *b.AsText();
  if (const List* list = a.AsList()) {
    const List* other = b.AsList();
    return list->tuple == other->tuple &&
           std::equal(list->items.begin(), list->items.end(), other->items.begin(), other->items.end(),
                      [&](const Value& x, const Value& y) { return Equal(x, y, depth + 1); });
  }
  if (const Dict* dict = a.AsDict()) {
    const Dict* other = b.AsDict();
    return dict->items.size() == other->items.size() &&
           std::all_of(dict->items.begin(), dict->items.end(), [&](const auto& item) {
             const Value* found = other->Find(item.first);
             return found != nullptr && Equal(item.second, *found, depth + 1);
           });
  }
  if (a.AsNamespace() != nullptr) return a.AsNamespace() == b.AsNamespace();
  if (a.AsCallable() != nullptr) return a.AsCallable() == b.AsCallable();
  return true;  // None, Undefined
}

int Compare(const Value& a, const Value& b, const char* operation, int depth) {
  CheckDepth(depth);
  if (a.IsInteger() && b.IsInteger()) return a.Integer() < b.Integer() ? -1 : a.Integer() > b.Integer();
  if (a.IsNumber() && b.IsNumber()) return a.Number() < b.Number() ? -1 : a.Number() > b.Number();
  if (a.IsText() && b.IsText()) return a.AsText()->compare(*b.AsText());  // UTF-8 sorts as its characters do
  if (a.AsList() != nullptr && b.AsList() != nullptr && a.AsList()->tuple == b.AsList()->tuple) {
    const auto &x = a.AsList()->items, &y = b.AsList()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!Equal(x[i], y[i], depth + 1)) return Compare(x[i], y[i], operation, depth + 1);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  for (const Value* value : {&a, &b}) {
    if (value->IsUndefined()) throw TemplateError(std::get<Undefined>(value->data()).what);
  }
  throw TemplateError(std::string("'") + operation + "' not supported between instances of '" + a.TypeName() +
                      "' and '" + b.TypeName() + "'");
}

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->around.get()) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, const Value& value) {
  for (auto& [known, old] : names) {
    if (known == name) {
      old = value;
      return;
    }
  }
  names.emplace_back(name, value);
}

Run::Run(const Limits& limits, Clock now)
    : scope(std::make_shared<Scope>()), limits_(limits), now_(std::move(now)), steps_left_(limits.steps) {}

Run::~Run() {
  for (const auto& space : namespaces_) space->fields.items.clear();
  for (const auto& captured : captured_) captured->names.clear();
}

void Run::Step(size_t steps) {
  if (steps > steps_left_) {
    steps_left_ = 0;
    Fail(fmt::format("the template takes more than {} steps", limits_.steps));
  }
  steps_left_ -= steps;
}

void Run::Reserve(size_t bytes) {
  if (bytes > limits_.text_bytes) Fail(fmt::format("a text of more than {} bytes", limits_.text_bytes));
  Step(bytes / 16);
}

void Run::Write(std::string_view text) {
  Reserve(text.size());
  if (output.size() + text.size() > limits_.text_bytes) {
    Fail(fmt::format("the output has more than {} bytes", limits_.text_bytes));
  }
  output += text;
}

std::shared_ptr<Namespace> Run::NewNamespace() {
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

Within::Within(Run& run, std::shared_ptr<Scope> around) : run_(run), before_(run.scope) {
  auto inner = std::make_shared<Scope>();
  inner->around = std::move(around);
  run.scope = std::move(inner);
}

Descent::Descent(Run& run) : run_(run) {
  constexpr int kDeepest = 1000;
  if (run.depth >= kDeepest) Fail("the template's calls and expressions are nested too deep");
  ++run.depth;
}

Value MakeFunction(Function::Body body, int height) {
  return std::shared_ptr<Callable>(std::make_shared<Function>(std::move(body), height));
}

std::vector<const Value*> Bind(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, size_t required) {
  std::vector<const Value*> bound(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    Fail(fmt::format("{}() takes at most {} argument(s), {} given", function, names.size(),
                     arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) Fail(fmt::format("{}() has no argument '{}'", function, name));
    const Value*& slot = bound[static_cast<size_t>(found - names.begin())];
    if (slot != nullptr) Fail(fmt::format("{}() got '{}' twice", function, name));
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr)
      Fail(fmt::format("{}() lacks the argument '{}'", function, *(names.begin() + i)));
  }
  return bound;
}

int64_t IntegerOr(const Value* value, int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (!Defined(*value).IsInteger()) Fail(fmt::format("an integer is wanted, not a {}", value->TypeName()));
  return value->Integer();
}

const std::string& TextOf(const Value& value) {
  const std::string* text = Defined(value).AsText();
  if (text == nullptr) Fail(fmt::format("a string is wanted, not a {}", value.TypeName()));
  return *text;
}

void Fail(const std::string& reason) { throw TemplateError(reason); }

const Value& Defined(const Value& value) {
  if (value.IsUndefined()) Fail(std::get<Undefined>(value.data()).what);
  return value;
}

}  // namespace kevin::local::jinja
