#include "policies/local/text/jinja/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "policies/local/text/jinja/parser.h"
#include "policies/local/text/jinja/value.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {

namespace {

Value Range(Run& run, Arguments& arguments) {
  const auto given = Bind("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = given[1] == nullptr;
  const int64_t from = one ? 0 : IntegerOr(given[0], 0), to = IntegerOr(one ? given[0] : given[1], 0);
  const int64_t step = IntegerOr(given[2], 1);
  if (step == 0) Fail("range() arg 3 must not be zero");
  List list;
  for (int64_t i = from; step > 0 ? i < to : i > to;) {
    if (list.items.size() == run.limits().range_items) {
      Fail(fmt::format("range() of more than {} items", run.limits().range_items));
    }
    list.items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  run.Step(list.items.size());
  return list;
}

void AddFields(Run& run, Dict& dict, const Arguments& arguments) {
  for (const Value& value : arguments.positional) {
    const Dict* other = value.AsDict();
    if (other != nullptr) {
      for (const auto& [key, field] : other->items) dict.Set(key, field);
      continue;
    }
    for (const Value& pair : ItemsOf(run, value)) {
      const auto halves = ItemsOf(run, pair);
      if (halves.size() != 2) Fail("pairs of keys and values are wanted");
      run.Step(dict.items.size() / 4);
      dict.Set(halves[0], halves[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set(name, value);
}

Value MakeNamespace(Run& run, Arguments& arguments) {
  auto space = run.NewNamespace();
  AddFields(run, space->fields, arguments);
  return space;
}

Value MakeDict(Run& run, Arguments& arguments) {
  Dict dict;
  AddFields(run, dict, arguments);
  return dict;
}

Value RaiseException(Run& run, Arguments& arguments) {
  const Value message = *Bind("raise_exception", arguments, {"message"}, 1)[0];
  Fail("the template refuses: " + Str(run, message));
}

Value FormatNow(Run& run, Arguments& arguments) {
  const std::string& format = TextOf(*Bind("strftime_now", arguments, {"format"}, 1)[0]);
  if (format.empty()) return "";
  if (format.size() > 1000) Fail("a format of a date is too long");
  const std::tm now = run.LocalTime();
  std::string text(100 * format.size(), '\0');
  // No directive produces more.
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &now));
  run.Reserve(text.size());
  return text;
}

// The functions that every template sees.
void SetGlobals(Scope& scope) {
  scope.Set("range", MakeFunction(Range));
  scope.Set("namespace", MakeFunction(MakeNamespace));
  scope.Set("dict", MakeFunction(MakeDict));
  scope.Set("raise_exception", MakeFunction(RaiseException));
  scope.Set("strftime_now", MakeFunction(FormatNow));
}

// Tests: the words after `is`.
using Test = bool (*)(Run&, const Value& subject, const Arguments&);

template <Operator op>
bool Compared(Run& run, const Value& subject, const Arguments& arguments) {
  return Apply(run, op, subject, *Bind("test", arguments, {"other"}, 1)[0]).Truth();
}

template <bool odd>
bool IsOdd(Run&, const Value& subject, const Arguments& arguments) {
  Bind(odd ? "odd" : "even", arguments, {});
  return (IntegerOr(&subject, 0) % 2 != 0) == odd;
}

bool DivisibleBy(Run& run, const Value& subject, const Arguments& arguments) {
  return Equal(Apply(run, Operator::kModulo, subject, *Bind("divisibleby", arguments, {"num"}, 1)[0]), 0);
}

bool SameAs(Run&, const Value& subject, const Arguments& arguments) {
  const Value& other = *Bind("sameas", arguments, {"other"}, 1)[0];
  return subject.data().index() == other.data().index() && Equal(subject, other);
}

template <bool upper>
bool TestCase(Run& run, const Value& subject, const Arguments& arguments) {
  Bind("case", arguments, {});
  Arguments none;
  return CallValue(run, *MethodOf(Str(run, subject), upper ? "isupper" : "islower"), none).Truth();
}

bool IsIterable(const Value& v) {
  return v.IsText() || v.AsList() != nullptr || v.AsDict() != nullptr || v.IsUndefined();
}

// Tests of the value alone.
template <bool (*test)(const Value&)>
bool Alone(Run&, const Value& subject, const Arguments& arguments) {
  Bind("test", arguments, {});
  return test(subject);
}
bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsUndefined(const Value& v) { return v.IsUndefined(); }
bool IsNone(const Value& v) { return v.IsNone(); }
bool IsText(const Value& v) { return v.IsText(); }
bool IsMapping(const Value& v) { return v.AsDict() != nullptr; }
bool IsNumber(const Value& v) { return v.IsNumber(); }
bool IsInteger(const Value& v) { return v.Is<int64_t>(); }
bool IsFloat(const Value& v) { return v.Is<double>(); }
bool IsBoolean(const Value& v) { return v.Is<bool>(); }
bool IsTrue(const Value& v) { return v.Is<bool>() && v.Truth(); }
bool IsFalse(const Value& v) { return v.Is<bool>() && !v.Truth(); }
bool IsCallable(const Value& v) { return v.AsCallable() != nullptr; }

const std::map<std::string_view, Test>& Tests() {
  static const std::map<std::string_view, Test> tests = {{"defined", Alone<IsDefined>},
                                                         {"undefined", Alone<IsUndefined>},
                                                         {"none", Alone<IsNone>},
                                                         {"string", Alone<IsText>},
                                                         {"mapping", Alone<IsMapping>},
                                                         {"iterable", Alone<IsIterable>},
                                                         {"sequence", Alone<IsIterable>},
                                                         {"number", Alone<IsNumber>},
                                                         {"integer", Alone<IsInteger>},
                                                         {"float", Alone<IsFloat>},
                                                         {"boolean", Alone<IsBoolean>},
                                                         {"true", Alone<IsTrue>},
                                                         {"false", Alone<IsFalse>},
                                                         {"callable", Alone<IsCallable>},
                                                         {"odd", IsOdd<true>},
                                                         {"even", IsOdd<false>},
                                                         {"divisibleby", DivisibleBy},
                                                         {"sameas", SameAs},
                                                         {"upper", TestCase<true>},
                                                         {"lower", TestCase<false>},
                                                         {"in", Compared<Operator::kIn>},
                                                         {"eq", Compared<Operator::kEqual>},
                                                         {"equalto", Compared<Operator::kEqual>},
                                                         {"==", Compared<Operator::kEqual>},
                                                         {"ne", Compared<Operator::kNotEqual>},
                                                         {"!=", Compared<Operator::kNotEqual>},
                                                         {"lt", Compared<Operator::kLess>},
                                                         {"lessthan", Compared<Operator::kLess>},
                                                         {"<", Compared<Operator::kLess>},
                                                         {"le", Compared<Operator::kLessEqual>},
                                                         {"<=", Compared<Operator::kLessEqual>},
                                                         {"gt", Compared<Operator::kGreater>},
                                                         {"greaterthan", Compared<Operator::kGreater>},
                                                         {">", Compared<Operator::kGreater>},
                                                         {"ge", Compared<Operator::kGreaterEqual>},
                                                         {">=", Compared<Operator::kGreaterEqual>}};
  return tests;
}

}  // namespace

bool ApplyTest(Run& run, std::string_view name, const Value& subject, Arguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end()) Fail(fmt::format("no test named '{}'", name));
  return found->second(run, subject, arguments);
}

Template::Template(std::string_view source, const Limits& limits)
    : limits_(limits), body_(std::make_shared<const Body>(Parse(source, limits))) {}

std::string Template::Render(const nlohmann::ordered_json& variables, const Clock& now) const {
  Run run(limits_, now);
  SetGlobals(*run.scope);
  const Within within(run);
  for (const auto& [name, value] : variables.items()) run.scope->Set(name, Value::FromJson(value));
  body_->Execute(run);
  return std::move(run.output);
}

}  // namespace kevin::local::jinja
