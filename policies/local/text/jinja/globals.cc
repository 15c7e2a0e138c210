#include <fmt/format.h>

#include <algorithm>

#include "policies/local/text/jinja/operators.h"
#include "policies/local/text/jinja/python_text.h"
#include "policies/local/text/jinja/template.h"

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
  const std::tm now = run.Now();
  std::string text(100 * format.size(), '\0');
  // What one directive makes is never that long.
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &now));
  run.Reserve(text.size());
  return text;
}

}  // namespace

void SetGlobals(Scope& scope) {
  scope.Set("range", MakeFunction(Range));
  scope.Set("namespace", MakeFunction(MakeNamespace));
  scope.Set("dict", MakeFunction(MakeDict));
  scope.Set("raise_exception", MakeFunction(RaiseException));
  scope.Set("strftime_now", MakeFunction(FormatNow));
}

}  // namespace kevin::local::jinja
