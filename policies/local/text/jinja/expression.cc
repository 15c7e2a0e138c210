#include "policies/local/text/jinja/expression.h"

#include <fmt/format.h>

#include "policies/local/text/jinja/operators.h"
#include "policies/local/text/jinja/python_text.h"

namespace kevin::local::jinja {
Value Expression::Evaluate(Run& run) const {
  try {
    run.Step();
    const Descent descent(run);
    return Make(run);
  } catch (const TemplateError& error) {
    if (error.line() != 0) throw;
    throw TemplateError(error.what(), line);
  }
}

Arguments ArgumentList::Evaluate(Run& run) const {
  Arguments arguments;
  for (const auto& argument : positional) arguments.positional.push_back(argument->Evaluate(run));
  for (const auto& [name, argument] : named) arguments.named.emplace_back(name, argument->Evaluate(run));
  if (rest != nullptr) {
    for (Value& item : ItemsOf(run, rest->Evaluate(run))) arguments.positional.push_back(std::move(item));
  }
  if (named_rest != nullptr) {
    const Value value = named_rest->Evaluate(run);
    if (value.AsDict() == nullptr) Fail("a mapping is wanted after **");
    for (const auto& [name, item] : value.AsDict()->items) arguments.named.emplace_back(TextOf(name), item);
  }
  return arguments;
}

Value Name::Make(Run& run) const {
  const Value* found = run.scope->Find(name);
  return found != nullptr ? *found : Value(Undefined{fmt::format("'{}' is undefined", name)});
}

Value ListDisplay::Make(Run& run) const {
  List list{{}, tuple};
  for (const auto& item : items) list.items.push_back(item->Evaluate(run));
  return list;
}

Value DictDisplay::Make(Run& run) const {
  Dict dict;
  for (const auto& [key_node, value_node] : items) {
    const Value key = key_node->Evaluate(run);
    if (key.AsDict() != nullptr || (key.AsList() != nullptr && !key.AsList()->tuple)) {
      Fail(fmt::format("unhashable type: '{}'", key.TypeName()));
    }
    run.Step(dict.items.size() / 4);
    dict.Set(key, value_node->Evaluate(run));
  }
  return dict;
}

Value Field::Make(Run& run) const { return FieldOf(run, object->Evaluate(run), name); }

Value Item::Make(Run& run) const {
  const Value value = object->Evaluate(run);
  return ItemOf(run, value, index->Evaluate(run));
}

Value Slice::Make(Run& run) const {
  const Value value = object->Evaluate(run);
  std::optional<Value> bounds[3];
  const ExpressionPtr* nodes[] = {&from, &to, &step};
  for (int i = 0; i < 3; ++i) {
    if (*nodes[i] != nullptr) bounds[i] = (*nodes[i])->Evaluate(run);
  }
  const auto pointer = [](std::optional<Value>& bound) { return bound ? &*bound : nullptr; };
  return SliceOf(run, value, pointer(bounds[0]), pointer(bounds[1]), pointer(bounds[2]));
}

Value CallExpression::Make(Run& run) const {
  const Value function = callee->Evaluate(run);
  Arguments values = arguments.Evaluate(run);
  return CallValue(run, function, values);
}

Value FilterExpression::Make(Run& run) const {
  const Value value = subject->Evaluate(run);
  Arguments values = arguments.Evaluate(run);
  return ApplyFilter(run, name, value, values);
}

Value TestExpression::Make(Run& run) const {
  const Value value = subject->Evaluate(run);
  Arguments values = arguments.Evaluate(run);
  return ApplyTest(run, name, value, values);
}

Value Binary::Make(Run& run) const {
  const Value a = left->Evaluate(run);
  return Apply(run, op, a, right->Evaluate(run));
}

Value Comparison::Make(Run& run) const {
  Value a = first->Evaluate(run);
  for (const auto& [op, node] : others) {
    Value b = node->Evaluate(run);
    if (!Apply(run, op, a, b).Truth()) return false;
    a = std::move(b);
  }
  return true;
}

Value Junction::Make(Run& run) const {
  Value value = left->Evaluate(run);
  return value.Truth() == both ? right->Evaluate(run) : value;
}

Value Not::Make(Run& run) const { return !operand->Evaluate(run).Truth(); }

Value Sign::Make(Run& run) const {
  const Value value = operand->Evaluate(run);
  if (!Defined(value).IsNumber())
    Fail(fmt::format("bad operand type for unary sign: '{}'", value.TypeName()));
  if (value.IsInteger()) return Apply(run, minus ? Operator::kSubtract : Operator::kAdd, 0, value);
  return minus ? -value.Number() : value.Number();
}

Value Concatenation::Make(Run& run) const {
  std::string text;
  for (const auto& part : parts) {
    const std::string more = Str(run, part->Evaluate(run));
    run.Reserve(text.size() + more.size());
    text += more;
  }
  return text;
}

Value Conditional::Make(Run& run) const {
  if (test->Evaluate(run).Truth()) return then->Evaluate(run);
  if (otherwise != nullptr) return otherwise->Evaluate(run);
  return Undefined{"the inline if-expression has no else"};
}

}  // namespace kevin::local::jinja
