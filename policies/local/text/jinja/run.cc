#include "policies/local/text/jinja/run.h"

#include <fmt/format.h>

#include <algorithm>

namespace kevin::local::jinja {

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

Value MakeFunction(Function::Body body) {
  return std::shared_ptr<Callable>(std::make_shared<Function>(std::move(body)));
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
