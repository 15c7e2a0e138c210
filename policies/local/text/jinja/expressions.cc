#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "policies/local/text/jinja/tree.h"
#include "policies/local/text/jinja/value.h"
#include "policies/local/text/utf8.h"

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

namespace {

[[noreturn]] void TooLarge() { Fail("a number is too large"); }

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) Fail("zero cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? int64_t{1} : base;
  if (base == -1) return exponent % 2 == 0 ? int64_t{1} : int64_t{-1};
  int64_t result = 1;
  for (; exponent > 0; --exponent) {  // at most 63 times
    if (__builtin_mul_overflow(result, base, &result)) TooLarge();
  }
  return result;
}

Value IntegerResult(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) TooLarge();
      return result;
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) TooLarge();
      return result;
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) TooLarge();
      return result;
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      break;
  }
  if (b == 0) Fail(op == Operator::kModulo ? "integer modulo by zero" : "division by zero");
  if (op == Operator::kDivide) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == Operator::kModulo ? Value(0) : IntegerResult(Operator::kSubtract, 0, a);
  const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  return op == Operator::kFloorDivide ? quotient : a - quotient * b;
}

Value FloatResult(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return a + b;
    case Operator::kSubtract:
      return a - b;
    case Operator::kMultiply:
      return a * b;
    case Operator::kPower:
      return std::pow(a, b);
    default:
      break;
  }
  if (b == 0) Fail("float division by zero");
  if (op == Operator::kDivide) return a / b;
  if (op == Operator::kFloorDivide) return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value Repeated(Run& run, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const std::string* text = value.AsText()) {
    if (count > 0 && text->size() > run.limits().text_bytes / count) run.Reserve(run.limits().text_bytes + 1);
    run.Reserve(text->size() * count);
    std::string result;
    for (size_t i = 0; i < (text->empty() ? 0 : count); ++i) result += *text;
    return result;
  }
  const List& list = *value.AsList();
  if (count > 0 && list.items.size() > run.limits().range_items / count) Fail("a list is too long");
  List result{{}, list.tuple};
  for (size_t i = 0; i < (list.items.empty() ? 0 : count); ++i) {
    result.items.insert(result.items.end(), list.items.begin(), list.items.end());
  }
  run.Step(result.items.size());
  return result;
}

std::optional<Value> SequenceResult(Run& run, Operator op, const Value& left, const Value& right) {
  if (op == Operator::kAdd && left.IsText() && right.IsText()) {
    run.Reserve(left.AsText()->size() + right.AsText()->size());
    return *left.AsText() + *right.AsText();
  }
  const List *a = left.AsList(), *b = right.AsList();
  if (op == Operator::kAdd && a != nullptr && b != nullptr && a->tuple == b->tuple) {
    run.Step(a->items.size() + b->items.size());
    List sum = *a;
    sum.items.insert(sum.items.end(), b->items.begin(), b->items.end());
    return sum;
  }
  if (op == Operator::kMultiply && (left.IsText() || a != nullptr) && right.IsInteger()) {
    return Repeated(run, left, right.Integer());
  }
  if (op == Operator::kMultiply && (right.IsText() || b != nullptr) && left.IsInteger()) {
    return Repeated(run, right, left.Integer());
  }
  if (op == Operator::kModulo && left.IsText()) return FormatPercent(run, *left.AsText(), right);
  return std::nullopt;
}

}  // namespace

Value Apply(Run& run, Operator op, const Value& left, const Value& right) {
  static constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  switch (op) {
    case Operator::kEqual:
      return Equal(left, right);
    case Operator::kNotEqual:
      return !Equal(left, right);
    case Operator::kLess:
      return Compare(left, right, "<") < 0;
    case Operator::kLessEqual:
      return Compare(left, right, "<=") <= 0;
    case Operator::kGreater:
      return Compare(left, right, ">") > 0;
    case Operator::kGreaterEqual:
      return Compare(left, right, ">=") >= 0;
    case Operator::kIn:
      return Contains(run, right, left);
    case Operator::kNotIn:
      return !Contains(run, right, left);
    default:
      break;
  }
  Defined(left);
  Defined(right);
  if (left.IsInteger() && right.IsInteger()) return IntegerResult(op, left.Integer(), right.Integer());
  if (left.IsNumber() && right.IsNumber()) return FloatResult(op, left.Number(), right.Number());
  if (auto result = SequenceResult(run, op, left, right)) return *std::move(result);
  Fail(fmt::format("'{}' cannot be applied to '{}' and '{}'", kSigns[static_cast<int>(op)], left.TypeName(),
                   right.TypeName()));
}

bool Contains(Run& run, const Value& container, const Value& item) {
  if (const std::string* text = container.AsText()) {
    run.Step(text->size() / 16);
    return text->find(TextOf(item)) != std::string::npos;
  }
  if (const Dict* dict = container.AsDict()) return dict->Find(item) != nullptr;
  if (container.IsUndefined()) return false;
  const List* list = container.AsList();
  if (list == nullptr) Fail(fmt::format("argument of type '{}' is not iterable", container.TypeName()));
  run.Step(list->items.size());
  return std::any_of(list->items.begin(), list->items.end(),
                     [&](const Value& each) { return Equal(each, item); });
}

std::vector<Value> ItemsOf(Run& run, const Value& value) {
  std::vector<Value> items;
  if (const List* list = value.AsList()) {
    items = list->items;
  } else if (const Dict* dict = value.AsDict()) {
    for (const auto& [key, item] : dict->items) items.push_back(key);
  } else if (const std::string* text = value.AsText()) {
    run.Step(text->size());
    for (size_t at = 0; at < text->size();) {
      const size_t length = DecodeCharacter(*text, at).length;
      items.push_back(text->substr(at, length));
      at += length;
    }
  } else if (!value.IsUndefined()) {
    Fail(fmt::format("'{}' object is not iterable", value.TypeName()));
  }
  run.Step(items.size());
  return items;
}

size_t LengthOf(Run& run, const Value& value) {
  if (const List* list = value.AsList()) return list->items.size();
  if (const Dict* dict = value.AsDict()) return dict->items.size();
  if (value.IsUndefined()) return 0;
  const std::string* text = value.AsText();
  if (text == nullptr) Fail(fmt::format("object of type '{}' has no len()", value.TypeName()));
  run.Step(text->size() / 16);
  return CountCharacters(*text);
}

Value CallValue(Run& run, const Value& callee, Arguments& arguments) {
  Callable* callable = Defined(callee).AsCallable();
  if (callable == nullptr) Fail(fmt::format("'{}' object is not callable", callee.TypeName()));
  const Value keep = callee;
  return callable->Call(run, arguments);
}

}  // namespace kevin::local::jinja
