#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "policies/local/text/jinja/tree.h"
#include "policies/local/text/jinja/value.h"

namespace kevin::local::jinja {

namespace {

// `loop` within {% for %}.
class Loop : public Callable {
 public:
  explicit Loop(const Value& list) : list_(list), items_(list_.AsList()->items) {}
  Value Call(Run& run, Arguments& arguments) override;
  std::optional<Value> Field(std::string_view name) const override;
  int Height() const override { return list_.Height() + 1; }

  bool Next() { return ++index_ < static_cast<int64_t>(items_.size()); }  // before the first item, too
  const Value& Current() const { return items_[static_cast<size_t>(index_)]; }

 private:
  Value Neighbour(int64_t index, const char* what) const;

  const Value list_;
  const std::vector<Value>& items_;  // of the list
  int64_t index_ = -1;
};

Value Loop::Call(Run&, Arguments&) { Fail("recursive loops are not supported"); }

Value Loop::Neighbour(int64_t index, const char* what) const {
  const bool there = index >= 0 && index < static_cast<int64_t>(items_.size());
  return there ? items_[static_cast<size_t>(index)] : Value(Undefined{what});
}

std::optional<Value> Loop::Field(std::string_view name) const {
  const auto size = static_cast<int64_t>(items_.size());
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "revindex") return size - index_;
  if (name == "revindex0") return size - index_ - 1;
  if (name == "first") return index_ == 0;
  if (name == "last") return index_ + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return 1;  // it counts recursive loops
  if (name == "depth0") return 0;
  if (name == "previtem") return Neighbour(index_ - 1, "there is no previous item");
  if (name == "nextitem") return Neighbour(index_ + 1, "there is no next item");
  if (name == "cycle") {
    return MakeFunction([index = index_](Run&, Arguments& arguments) {
      if (arguments.positional.empty()) Fail("no items for cycling given");
      return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
    });
  }
  return std::nullopt;
}

}  // namespace

Flow Body::Execute(Run& run) const {
  const Descent descent(run);
  for (const auto& statement : statements) {
    try {
      run.Step();
      if (const Flow flow = statement->Execute(run); flow != Flow::kNext) return flow;
    } catch (const TemplateError& error) {
      if (error.line() != 0) throw;
      throw TemplateError(error.what(), statement->line);
    }
  }
  return Flow::kNext;
}

void Target::Assign(Run& run, const Value& value) const {
  if (!several.empty()) {
    const std::vector<Value> items = ItemsOf(run, Defined(value));
    if (items.size() != several.size()) {
      throw TemplateError(fmt::format("{} values for {} names", items.size(), several.size()), line);
    }
    for (size_t i = 0; i < items.size(); ++i) several[i].Assign(run, items[i]);
  } else if (field.empty()) {
    run.scope->Set(name, value);
  } else {
    const Value* object = run.scope->Find(name);
    if (object == nullptr || object->AsNamespace() == nullptr) {
      throw TemplateError("cannot assign attribute on non-namespace object '" + name + "'", line);
    }
    object->AsNamespace()->fields.Set(field, value);
  }
}

Flow Data::Execute(Run& run) const {
  run.Write(text);
  return Flow::kNext;
}

Flow Print::Execute(Run& run) const {
  const Value printed = value->Evaluate(run);
  if (const std::string* text = printed.AsText()) {
    run.Write(*text);
  } else {
    run.Write(Str(run, printed));
  }
  return Flow::kNext;
}

Flow If::Execute(Run& run) const {
  for (const auto& [test, body] : branches) {
    if (test->Evaluate(run).Truth()) return body.Execute(run);
  }
  return otherwise.Execute(run);
}

Flow For::Execute(Run& run) const {
  std::vector<Value> all = ItemsOf(run, items->Evaluate(run));
  if (filter != nullptr) {
    std::vector<Value> kept;
    for (Value& item : all) {
      const Within within(run);
      target.Assign(run, item);
      if (filter->Evaluate(run).Truth()) kept.push_back(std::move(item));
    }
    all = std::move(kept);
  }
  const bool none = all.empty();
  const auto loop = std::make_shared<Loop>(MakeList(std::move(all)));
  while (loop->Next()) {
    run.Step();
    const Within within(run);
    run.scope->Set("loop", std::shared_ptr<Callable>(loop));
    target.Assign(run, loop->Current());
    if (body.Execute(run) == Flow::kBreak) break;
  }
  if (!none) return Flow::kNext;
  const Within within(run);
  return otherwise.Execute(run);
}

Flow Set::Execute(Run& run) const {
  target.Assign(run, value->Evaluate(run));
  return Flow::kNext;
}

Value Filters::Apply(Run& run, Value value) const {
  for (const auto& [name, argument_list] : list) {
    Arguments arguments = argument_list.Evaluate(run);
    value = ApplyFilter(run, name, value, arguments);
  }
  return value;
}

namespace {

// The output of `body`.
std::string Captured(Run& run, const Body& body, Flow& flow) {
  const Within within(run);
  Capture capture(run);
  flow = body.Execute(run);
  return capture.Take();
}

class Macro : public Callable {
 public:
  Macro(const MacroDefinition& definition, std::shared_ptr<Scope> around)
      : definition_(definition), around_(std::move(around)) {}

  Value Call(Run& run, Arguments& arguments) override {
    if (run.calls >= run.limits().calls) Fail("macros call each other too deep");
    ++run.calls;
    try {
      const Within within(run, around_);
      BindParameters(run, arguments);
      Capture capture(run);
      definition_.body.Execute(run);
      --run.calls;
      return capture.Take();
    } catch (...) {
      --run.calls;
      throw;
    }
  }

  std::optional<Value> Field(std::string_view name) const override {
    return name == "name" ? std::optional<Value>(definition_.name) : std::nullopt;
  }

 private:
  void BindParameters(Run& run, Arguments& arguments) const {
    const auto& parameters = definition_.parameters;
    std::vector<std::pair<std::string, Value>> named = std::move(arguments.named);
    const auto take = [&](const std::string& name) -> std::optional<Value> {
      const auto found =
          std::find_if(named.begin(), named.end(), [&](const auto& each) { return each.first == name; });
      if (found == named.end()) return std::nullopt;
      Value value = std::move(found->second);
      named.erase(found);
      return value;
    };
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, otherwise] = parameters[i];
      std::optional<Value> given = i < arguments.positional.size() ? arguments.positional[i] : take(name);
      if (!given) {
        given = otherwise != nullptr ? otherwise->Evaluate(run)
                                     : Value(Undefined{fmt::format("parameter '{}' was not provided", name)});
      }
      run.scope->Set(name, *given);
    }
    std::optional<Value> caller = take("caller");
    if (definition_.uses_caller) {
      run.scope->Set("caller", caller.value_or(Undefined{"No caller defined"}));
    } else if (caller && definition_.name != "caller") {
      Fail("macro '" + definition_.name + "' was called with a call block but takes none");
    }
    BindRest(run, arguments, std::move(named));
  }

  void BindRest(Run& run, const Arguments& arguments,
                std::vector<std::pair<std::string, Value>> named) const {
    const size_t count = definition_.parameters.size();
    List varargs{{}, true};
    for (size_t i = count; i < arguments.positional.size(); ++i)
      varargs.items.push_back(arguments.positional[i]);
    if (!varargs.items.empty() && !definition_.uses_varargs) {
      Fail(fmt::format("macro '{}' takes not more than {} argument(s)", definition_.name, count));
    }
    if (!named.empty() && !definition_.uses_kwargs) {
      Fail(fmt::format("macro '{}' takes no keyword argument '{}'", definition_.name, named.front().first));
    }
    if (definition_.uses_varargs) run.scope->Set("varargs", std::move(varargs));
    if (!definition_.uses_kwargs) return;
    Dict kwargs;
    for (auto& [name, value] : named) kwargs.Set(name, value);
    run.scope->Set("kwargs", std::move(kwargs));
  }

  const MacroDefinition& definition_;  // of the template, which outlives its renderings
  const std::shared_ptr<Scope> around_;
};

}  // namespace

Flow SetBlock::Execute(Run& run) const {
  Flow flow = Flow::kNext;
  Value text = Captured(run, body, flow);
  target.Assign(run, filters.Apply(run, std::move(text)));
  return flow;
}

Flow FilterBlock::Execute(Run& run) const {
  Flow flow = Flow::kNext;
  Value text = Captured(run, body, flow);
  run.Write(Str(run, filters.Apply(run, std::move(text))));
  return flow;
}

Flow With::Execute(Run& run) const {
  std::vector<Value> values;
  for (const auto& [target, value] : variables) values.push_back(value->Evaluate(run));
  const Within within(run);
  for (size_t i = 0; i < values.size(); ++i) variables[i].first.Assign(run, values[i]);
  return body.Execute(run);
}

Value MacroDefinition::Function(Run& run) const {
  run.Captured(run.scope);
  return std::shared_ptr<Callable>(std::make_shared<Macro>(*this, run.scope));
}

Flow MacroDefinition::Execute(Run& run) const {
  run.scope->Set(name, Function(run));
  return Flow::kNext;
}

Flow CallBlock::Execute(Run& run) const {
  const auto& expression = static_cast<const CallExpression&>(*call);
  const Value macro = expression.callee->Evaluate(run);
  Arguments arguments = expression.arguments.Evaluate(run);
  arguments.named.emplace_back("caller", caller.Function(run));
  run.Write(Str(run, CallValue(run, macro, arguments)));
  return Flow::kNext;
}

}  // namespace kevin::local::jinja
