// What `is` asks.
#include <fmt/format.h>

#include <map>

#include "policies/local/text/jinja/filters.h"
#include "policies/local/text/jinja/operators.h"
#include "policies/local/text/jinja/python_text.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {
namespace {

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

}  // namespace kevin::local::jinja
