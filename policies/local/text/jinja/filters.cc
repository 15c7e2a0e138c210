#include "policies/local/text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "policies/local/text/jinja/operators.h"
#include "policies/local/text/jinja/python_text.h"
#include "policies/local/text/jinja/text_methods.h"

namespace kevin::local::jinja {
namespace {

Value Default(Run&, const Value& subject, Arguments& arguments) {
  const auto given = Bind("default", arguments, {"default_value", "boolean"});
  const bool also_false = given[1] != nullptr && given[1]->Truth();
  if (!subject.IsUndefined() && !(also_false && !subject.Truth())) return subject;
  return given[0] == nullptr ? Value("") : *given[0];
}

std::optional<std::string> Indent(const Value* value) {
  if (value == nullptr || value->IsNone()) return std::nullopt;
  if (value->IsText()) return *value->AsText();
  const int64_t width = IntegerOr(value, 0);
  if (width > 1000) Fail("an indent is too wide");
  return std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
}

Value ToJsonFilter(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonLayout layout;
  layout.ascii = given[0] != nullptr && given[0]->Truth();
  layout.indent = Indent(given[1]);
  if (layout.indent) layout.item_separator.resize(1);  // no blank where a line ends
  if (given[2] != nullptr && !given[2]->IsNone()) {
    const auto separators = ItemsOf(run, *given[2]);
    if (separators.size() != 2) Fail("tojson() wants two separators");
    layout.item_separator = TextOf(separators[0]);
    layout.key_separator = TextOf(separators[1]);
  }
  layout.sort_keys = given[3] != nullptr && given[3]->Truth();
  return ToJson(run, Defined(subject), layout);
}

Value Length(Run& run, const Value& subject, Arguments& arguments) {
  Bind("length", arguments, {});
  return static_cast<int64_t>(LengthOf(run, subject));
}

Value Absolute(Run& run, const Value& subject, Arguments& arguments) {
  Bind("abs", arguments, {});
  if (!Defined(subject).IsNumber()) Fail(fmt::format("bad operand type for abs(): '{}'", subject.TypeName()));
  if (!subject.IsInteger()) return std::abs(subject.Number());
  return subject.Integer() < 0 ? Apply(run, Operator::kSubtract, 0, subject) : Value(subject.Integer());
}

// The number that a whole text says.
template <typename Number>
std::optional<Number> Parsed(const std::string& text) {
  std::string_view digits = Stripped(text, Side::kBoth);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

Value ToInteger(Run&, const Value& subject, Arguments& arguments) {
  const auto given = Bind("int", arguments, {"default", "base"});
  if (IntegerOr(given[1], 10) != 10) Fail("int() knows base 10 only");
  std::optional<double> number;
  Defined(subject);
  if (subject.IsInteger()) return subject.Integer();
  if (subject.IsNumber()) number = subject.Number();
  if (subject.IsText()) {
    if (const auto whole = Parsed<int64_t>(*subject.AsText())) return *whole;
    number = Parsed<double>(*subject.AsText());
  }
  if (number && std::abs(*number) < 9e18) return static_cast<int64_t>(*number);
  return given[0] == nullptr ? Value(0) : *given[0];
}

Value ToFloat(Run&, const Value& subject, Arguments& arguments) {
  const auto given = Bind("float", arguments, {"default"});
  Defined(subject);
  if (subject.IsNumber()) return subject.Number();
  if (subject.IsText()) {
    if (const auto number = Parsed<double>(*subject.AsText())) return *number;
  }
  return given[0] == nullptr ? Value(0.0) : *given[0];
}

Value Round(Run&, const Value& subject, Arguments& arguments) {
  const auto given = Bind("round", arguments, {"precision", "method"});
  if (!Defined(subject).IsNumber()) Fail(fmt::format("round() wants a number, not a {}", subject.TypeName()));
  const int64_t digits = IntegerOr(given[0], 0);
  const std::string method = given[1] == nullptr ? "common" : TextOf(*given[1]);
  if (digits < 0 || digits > 300) Fail("round() knows 0 to 300 digits");
  if (method == "common") {
    if (subject.IsInteger()) return subject.Integer();  // as Python: round(int, n) is an int
    // Correctly rounded from the exact value, of two equally near the even one.
    const std::string text = fmt::format("{:.{}f}", subject.Number(), digits);
    return Parsed<double>(text).value_or(subject.Number());
  }
  if (method != "ceil" && method != "floor") Fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = subject.Number() * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value ToText(Run& run, const Value& subject, Arguments& arguments) {
  Bind("string", arguments, {});
  return subject.IsText() ? subject : Value(Str(run, subject));
}

Value AttributeOf(Run& run, const Value& subject, Arguments& arguments) {
  return FieldOf(run, subject, TextOf(*Bind("attr", arguments, {"name"}, 1)[0]));
}

Value Items(Run& run, const Value& subject, Arguments& arguments) {
  Bind("items", arguments, {});
  if (subject.IsUndefined()) return List{};
  if (subject.AsDict() == nullptr) Fail("Can only get item pairs from a mapping.");
  Arguments none;
  return CallValue(run, *MethodOf(subject, "items"), none);
}

}  // namespace

const FilterList& ValueFilters() {
  static const FilterList list = {{"default", Default}, {"d", Default},     {"tojson", ToJsonFilter},
                                  {"length", Length},   {"count", Length},  {"abs", Absolute},
                                  {"int", ToInteger},   {"float", ToFloat}, {"round", Round},
                                  {"string", ToText},   {"safe", ToText},   {"attr", AttributeOf},
                                  {"items", Items}};
  return list;
}

Value ApplyFilter(Run& run, std::string_view name, const Value& subject, Arguments& arguments) {
  for (const FilterList* list : {&ValueFilters(), &TextFilters(), &ListFilters()}) {
    if (const auto found = list->find(name); found != list->end())
      return found->second(run, subject, arguments);
  }
  Fail(fmt::format("no filter named '{}'", name));
}

}  // namespace kevin::local::jinja
