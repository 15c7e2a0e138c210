#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "policies/local/text/jinja/value.h"
#include "policies/local/text/utf8.h"

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

// A number that takes up the whole text.
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
    // Correctly rounded from the exact value; ties to even.
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

namespace {

// value.a.b.0 for "a.b.0"; the value itself without a path.
Value AtPath(Run& run, const Value& value, const Value* path) {
  if (path == nullptr || path->IsNone()) return value;
  if (path->IsInteger()) return ItemOf(run, value, *path);
  Value at = value;
  const std::string &names = TextOf(*path), dot = ".";
  for (const Value& part : SplitText(run, names, &dot, -1, false)) {
    const std::string& name = *part.AsText();
    int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = error == std::errc() && end == name.data() + name.size();
    at = is_index ? ItemOf(run, at, index) : ItemOf(run, at, name);
  }
  return at;
}

Value Folded(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.IsText() ? Value(ToLower(*value.AsText())) : value;
}

bool Flag(const Value* value) { return value != nullptr && value->Truth(); }

Value First(Run& run, const Value& subject, Arguments& arguments) {
  Bind("first", arguments, {});
  const auto items = ItemsOf(run, subject);
  return items.empty() ? Value(Undefined{"No first item, sequence was empty."}) : items.front();
}

Value Last(Run& run, const Value& subject, Arguments& arguments) {
  Bind("last", arguments, {});
  const auto items = ItemsOf(run, subject);
  return items.empty() ? Value(Undefined{"No last item, sequence was empty."}) : items.back();
}

Value ToList(Run& run, const Value& subject, Arguments& arguments) {
  Bind("list", arguments, {});
  return MakeList(ItemsOf(run, subject));
}

Value Join(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("join", arguments, {"d", "attribute"});
  std::vector<Value> items = ItemsOf(run, subject);
  for (Value& item : items) item = AtPath(run, item, given[1]);
  return Joined(run, items, given[0] == nullptr ? "" : Str(run, *given[0]), true);
}

Value Reverse(Run& run, const Value& subject, Arguments& arguments) {
  Bind("reverse", arguments, {});
  std::vector<Value> items = ItemsOf(run, Defined(subject));
  std::reverse(items.begin(), items.end());
  if (!subject.IsText()) return MakeList(std::move(items));
  return Joined(run, items, "", true);
}

// Charges n log n steps beforehand: an exception must not leave a sort in the middle of a swap.
std::vector<Value> Sorted(Run& run, std::vector<Value> items, const Value* path, bool case_sensitive,
                          bool reversed) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) keyed.emplace_back(Folded(AtPath(run, item, path), case_sensitive), item);
  for (size_t i = 1; i < keyed.size(); ++i) Compare(keyed[i - 1].first, keyed[i].first, "<");
  for (size_t n = keyed.size(); n > 1; n /= 2) run.Step(keyed.size());
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reversed ? Compare(b.first, a.first, "<") < 0 : Compare(a.first, b.first, "<") < 0;
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
  return items;
}

Value Sort(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  return MakeList(Sorted(run, ItemsOf(run, subject), given[2], Flag(given[1]), Flag(given[0])));
}

Value DictSort(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (subject.AsDict() == nullptr) Fail(fmt::format("dictsort() wants a dict, not a {}", subject.TypeName()));
  const std::string by = given[1] == nullptr ? "key" : TextOf(*given[1]);
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> pairs;
  for (const auto& [key, value] : subject.AsDict()->items) pairs.push_back(MakeTuple({key, value}));
  const Value place = by == "key" ? 0 : 1;
  return MakeList(Sorted(run, std::move(pairs), &place, Flag(given[0]), Flag(given[2])));
}

Value Unique(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> keys, kept;
  for (const Value& item : ItemsOf(run, subject)) {
    const Value key = Folded(AtPath(run, item, given[1]), Flag(given[0]));
    run.Step(keys.size());
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return Equal(known, key); }))
      continue;
    keys.push_back(key);
    kept.push_back(item);
  }
  return MakeList(std::move(kept));
}

template <bool largest>
Value Extreme(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto items = ItemsOf(run, subject);
  if (items.empty()) return Undefined{"No aggregated item, sequence was empty."};
  const auto key = [&](const Value& item) { return Folded(AtPath(run, item, given[1]), Flag(given[0])); };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const int order = Compare(key(items[i]), key(items[best]), "<");
    if (largest ? order > 0 : order < 0) best = i;
  }
  return items[best];
}

Value Sum(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("sum", arguments, {"attribute", "start"});
  Value sum = given[1] == nullptr ? Value(0) : *given[1];
  for (const Value& item : ItemsOf(run, subject)) {
    sum = Apply(run, Operator::kAdd, sum, AtPath(run, item, given[0]));
  }
  return sum;
}

Value Map(Run& run, const Value& subject, Arguments& arguments) {
  std::vector<Value> result;
  if (!subject.Truth()) return MakeList({});  // of None, too
  if (arguments.positional.empty()) {
    const auto given = Bind("map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : ItemsOf(run, subject)) {
      Value value = AtPath(run, item, given[0]);
      if (value.IsUndefined() && given[1] != nullptr) value = *given[1];
      result.push_back(std::move(value));
    }
    return MakeList(std::move(result));
  }
  const std::string filter = TextOf(arguments.positional.front());
  for (const Value& item : ItemsOf(run, subject)) {
    Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
    result.push_back(ApplyFilter(run, filter, item, rest));
  }
  return MakeList(std::move(result));
}

// select, reject, selectattr, rejectattr
template <bool keep, bool by_attribute>
Value Select(Run& run, const Value& subject, Arguments& arguments) {
  size_t next = 0;
  Value path;
  if (by_attribute) {
    if (arguments.positional.empty()) Fail("selectattr() lacks the attribute's name");
    path = arguments.positional[next++];
  }
  std::string test;
  if (next < arguments.positional.size()) test = TextOf(arguments.positional[next++]);
  std::vector<Value> kept;
  if (!subject.Truth()) return MakeList({});
  for (const Value& item : ItemsOf(run, subject)) {
    const Value value = by_attribute ? AtPath(run, item, &path) : item;
    Arguments rest{
        {arguments.positional.begin() + static_cast<std::ptrdiff_t>(next), arguments.positional.end()},
        arguments.named};
    const bool passes = test.empty() ? value.Truth() : ApplyTest(run, test, value, rest);
    if (passes == keep) kept.push_back(item);
  }
  return MakeList(std::move(kept));
}

Value Batch(Run& run, const Value& subject, Arguments& arguments) {
  const auto given = Bind("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = IntegerOr(given[0], 1);
  if (size < 1) Fail("batch() wants a positive number");
  std::vector<Value> rows;
  std::vector<Value> row;
  const auto items = ItemsOf(run, subject);
  for (const Value& item : items) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(MakeList(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty() && given[1] != nullptr && !given[1]->IsNone()) {
    while (static_cast<int64_t>(row.size()) < size) {
      run.Step();
      row.push_back(*given[1]);
    }
  }
  if (!row.empty()) rows.push_back(MakeList(std::move(row)));
  return MakeList(std::move(rows));
}

}  // namespace

const FilterList& ListFilters() {
  static const FilterList list = {{"first", First},
                                  {"last", Last},
                                  {"list", ToList},
                                  {"join", Join},
                                  {"reverse", Reverse},
                                  {"sort", Sort},
                                  {"dictsort", DictSort},
                                  {"unique", Unique},
                                  {"min", Extreme<false>},
                                  {"max", Extreme<true>},
                                  {"sum", Sum},
                                  {"map", Map},
                                  {"select", Select<true, false>},
                                  {"reject", Select<false, false>},
                                  {"selectattr", Select<true, true>},
                                  {"rejectattr", Select<false, true>},
                                  {"batch", Batch}};
  return list;
}

}  // namespace kevin::local::jinja
