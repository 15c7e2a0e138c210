#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "policies/local/text/jinja/value.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {

namespace {

const char* ObjectName(const Value& value) { return value.IsNone() ? "None" : value.TypeName(); }

Value Missing(const Value& object, std::string_view what, std::string_view name) {
  return Undefined{
      fmt::format("'{}{}' has no {} '{}'", ObjectName(object), object.IsNone() ? "" : " object", what, name)};
}

std::optional<Value> FieldIfAny(const Value& object, std::string_view name) {
  if (object.AsCallable() != nullptr) return object.AsCallable()->Field(name);
  if (object.AsNamespace() != nullptr) {
    const Value* found = object.AsNamespace()->fields.Find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  return MethodOf(object, name);
}

std::optional<Value> ItemIfAny(Run& run, const Value& object, const Value& index) {
  if (const Dict* dict = object.AsDict()) {
    const Value* found = dict->Find(index);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (!index.IsInteger()) return std::nullopt;
  int64_t i = index.Integer();
  if (const List* list = object.AsList()) {
    const auto size = static_cast<int64_t>(list->items.size());
    if (i < 0) i += size;
    return i < 0 || i >= size ? std::nullopt : std::optional<Value>(list->items[static_cast<size_t>(i)]);
  }
  if (const std::string* text = object.AsText()) {
    const auto size = static_cast<int64_t>(LengthOf(run, object));
    if (i < 0) i += size;
    if (i < 0 || i >= size) return std::nullopt;
    const size_t at = CharacterOffset(*text, static_cast<size_t>(i));
    return Value(text->substr(at, DecodeCharacter(*text, at).length));
  }
  return std::nullopt;
}

// Python's slice.indices.
struct Span {
  int64_t from, to, step;
};
Span Resolve(int64_t size, const Value* from, const Value* to, const Value* step) {
  const auto given = [](const Value* value) { return value != nullptr && !value->IsNone(); };
  Span span{};
  span.step = given(step) ? IntegerOr(step, 1) : 1;
  if (span.step == 0) Fail("slice step cannot be zero");
  const int64_t low = span.step < 0 ? -1 : 0, high = span.step < 0 ? size - 1 : size;
  const auto bound = [&](const Value* value, int64_t otherwise) {
    if (!given(value)) return otherwise;
    const int64_t i = IntegerOr(value, 0);
    return std::clamp(i < 0 ? std::max(i, -size - 1) + size : i, low, high);
  };
  span.from = bound(from, span.step < 0 ? high : low);
  span.to = bound(to, span.step < 0 ? low : high);
  return span;
}

}  // namespace

Value FieldOf(Run& run, const Value& object, std::string_view name) {
  Defined(object);
  if (auto found = FieldIfAny(object, name)) return *std::move(found);
  if (auto found = ItemIfAny(run, object, name)) return *std::move(found);
  return Missing(object, "attribute", name);
}

Value ItemOf(Run& run, const Value& object, const Value& index) {
  Defined(object);
  if (auto found = ItemIfAny(run, object, index)) return *std::move(found);
  if (index.IsText()) {
    if (auto found = FieldIfAny(object, *index.AsText())) return *std::move(found);
    return Missing(object, "attribute", *index.AsText());
  }
  return Missing(object, "element", index.IsInteger() ? std::to_string(index.Integer()) : index.TypeName());
}

Value SliceOf(Run& run, const Value& object, const Value* from, const Value* to, const Value* step) {
  const List* list = Defined(object).AsList();
  if (list == nullptr && !object.IsText()) {
    return Missing(object, "element", "slice");
  }
  const auto size = static_cast<int64_t>(LengthOf(run, object));
  const Span span = Resolve(size, from, to, step);
  if (list == nullptr && span.step == 1) {
    const std::string& text = *object.AsText();
    const auto count = static_cast<size_t>(std::max<int64_t>(0, span.to - span.from));
    const size_t begin = CharacterOffset(text, static_cast<size_t>(span.from));
    const std::string_view rest = std::string_view(text).substr(begin);
    const std::string_view part = rest.substr(0, CharacterOffset(rest, count));
    run.Reserve(part.size());
    return part;
  }
  const std::vector<Value> items = ItemsOf(run, object);
  std::vector<Value> part;
  for (int64_t i = span.from; span.step > 0 ? i < span.to : i > span.to;) {
    part.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, span.step, &i)) break;
  }
  if (list != nullptr) return List{std::move(part), list->tuple};
  std::string text;
  for (const Value& character : part) text += *character.AsText();
  return text;
}

// Methods of strings, lists and dicts.

namespace {

using Method = Value (*)(Run&, const Value& self, Arguments&);
using Methods = std::map<std::string_view, Method>;

const std::string& Self(const Value& self) { return *self.AsText(); }

const std::string* TextOrNone(const Value* value) {
  return value == nullptr || value->IsNone() ? nullptr : &TextOf(*value);
}

template <Side side>
Value Strip(Run& run, const Value& self, Arguments& arguments) {
  const auto given = Bind("strip", arguments, {"chars"});
  run.Reserve(Self(self).size());
  return Stripped(Self(self), side, TextOrNone(given[0]));
}

template <bool from_right>
Value Split(Run& run, const Value& self, Arguments& arguments) {
  const auto given = Bind("split", arguments, {"sep", "maxsplit"});
  return MakeList(SplitText(run, Self(self), TextOrNone(given[0]), IntegerOr(given[1], -1), from_right));
}

template <bool at_end>
Value Affix(Run&, const Value& self, Arguments& arguments) {
  const auto given = Bind(at_end ? "endswith" : "startswith", arguments, {"affix"}, 1);
  const auto has = [&](const Value& affix) {
    return at_end ? Self(self).ends_with(TextOf(affix)) : Self(self).starts_with(TextOf(affix));
  };
  const List* list = given[0]->AsList();
  if (list == nullptr || !list->tuple) return has(*given[0]);
  return std::any_of(list->items.begin(), list->items.end(), has);
}

template <bool at_end>
Value RemoveAffix(Run&, const Value& self, Arguments& arguments) {
  const std::string& affix = TextOf(*Bind("remove", arguments, {"affix"}, 1)[0]);
  std::string_view text = Self(self);
  if (at_end ? !text.ends_with(affix) : !text.starts_with(affix)) return self;
  if (at_end) {
    text.remove_suffix(affix.size());
  } else {
    text.remove_prefix(affix.size());
  }
  return text;
}

template <std::string (*function)(std::string_view)>
Value Mapped(Run& run, const Value& self, Arguments& arguments) {
  Bind("method", arguments, {});
  run.Reserve(Self(self).size());
  return function(Self(self));
}

Value Replace(Run& run, const Value& self, Arguments& arguments) {
  const auto given = Bind("replace", arguments, {"old", "new", "count"}, 2);
  return Replaced(run, Self(self), TextOf(*given[0]), TextOf(*given[1]), IntegerOr(given[2], -1));
}

template <bool from_right, bool must_be_there>
Value FindText(Run& run, const Value& self, Arguments& arguments) {
  const std::string& part = TextOf(*Bind("find", arguments, {"sub"}, 1)[0]);
  run.Step(Self(self).size() / 16);
  const size_t found = from_right ? Self(self).rfind(part) : Self(self).find(part);
  if (found == std::string::npos && must_be_there) Fail("substring not found");
  if (found == std::string::npos) return -1;
  return static_cast<int64_t>(CountCharacters(std::string_view(Self(self)).substr(0, found)));
}

Value CountText(Run& run, const Value& self, Arguments& arguments) {
  const std::string& part = TextOf(*Bind("count", arguments, {"sub"}, 1)[0]);
  run.Step(Self(self).size() / 16);
  if (part.empty()) return static_cast<int64_t>(CountCharacters(Self(self)) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = Self(self).find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

Value JoinText(Run& run, const Value& self, Arguments& arguments) {
  const Value items = *Bind("join", arguments, {"iterable"}, 1)[0];
  return Joined(run, ItemsOf(run, Defined(items)), Self(self), false);
}

Value Lines(Run& run, const Value& self, Arguments& arguments) {
  const auto given = Bind("splitlines", arguments, {"keepends"});
  return MakeList(SplitLines(run, Self(self), given[0] != nullptr && given[0]->Truth()));
}

template <Side where>
Value Justify(Run& run, const Value& self, Arguments& arguments) {
  const auto given = Bind("justify", arguments, {"width", "fillchar"}, 1);
  return Justified(run, Self(self), IntegerOr(given[0], 0), where,
                   given[1] == nullptr ? " " : TextOf(*given[1]));
}

template <bool from_right>
Value Partition(Run&, const Value& self, Arguments& arguments) {
  const std::string& separator = TextOf(*Bind("partition", arguments, {"sep"}, 1)[0]);
  if (separator.empty()) Fail("empty separator");
  const std::string& text = Self(self);
  const size_t found = from_right ? text.rfind(separator) : text.find(separator);
  if (found == std::string::npos) {
    return from_right ? MakeTuple({"", "", self}) : MakeTuple({self, "", ""});
  }
  return MakeTuple({text.substr(0, found), separator, text.substr(found + separator.size())});
}

// Whether the text is not empty and all characters are of one class.
template <bool (*sort)(char32_t)>
Value All(Run& run, const Value& self, Arguments& arguments) {
  Bind("method", arguments, {});
  run.Step(Self(self).size() / 4);
  for (size_t at = 0; at < Self(self).size();) {
    const Utf8Character character = DecodeCharacter(Self(self), at);
    if (!sort(character.code)) return false;
    at += character.length;
  }
  return !Self(self).empty();
}
bool IsDecimal(char32_t c) { return UnicodeCategory(c) == 9; }
bool IsLetter(char32_t c) { return UnicodeCategory(c) >= 1 && UnicodeCategory(c) <= 5; }
bool IsLetterOrDigit(char32_t c) {
  return IsLetter(c) || (UnicodeCategory(c) >= 9 && UnicodeCategory(c) <= 11);
}

template <bool upper>
Value IsCase(Run& run, const Value& self, Arguments& arguments) {
  Bind("method", arguments, {});
  run.Reserve(Self(self).size());
  const std::string same = upper ? ToUpper(Self(self)) : ToLower(Self(self));
  const std::string other = upper ? ToLower(Self(self)) : ToUpper(Self(self));
  return same == Self(self) && other != same;
}

Value Format(Run& run, const Value& self, Arguments& arguments) {
  return FormatBraces(run, Self(self), arguments);
}

const Methods kTextMethods = {{"strip", Strip<Side::kBoth>},
                              {"lstrip", Strip<Side::kLeft>},
                              {"rstrip", Strip<Side::kRight>},
                              {"split", Split<false>},
                              {"rsplit", Split<true>},
                              {"startswith", Affix<false>},
                              {"endswith", Affix<true>},
                              {"removeprefix", RemoveAffix<false>},
                              {"removesuffix", RemoveAffix<true>},
                              {"upper", Mapped<ToUpper>},
                              {"lower", Mapped<ToLower>},
                              {"capitalize", Mapped<Capitalized>},
                              {"title", Mapped<Titled>},
                              {"replace", Replace},
                              {"find", FindText<false, false>},
                              {"rfind", FindText<true, false>},
                              {"index", FindText<false, true>},
                              {"rindex", FindText<true, true>},
                              {"count", CountText},
                              {"join", JoinText},
                              {"splitlines", Lines},
                              {"ljust", Justify<Side::kLeft>},
                              {"rjust", Justify<Side::kRight>},
                              {"center", Justify<Side::kBoth>},
                              {"partition", Partition<false>},
                              {"rpartition", Partition<true>},
                              {"isdigit", All<IsDecimal>},
                              {"isdecimal", All<IsDecimal>},
                              {"isnumeric", All<IsDecimal>},
                              {"isalpha", All<IsLetter>},
                              {"isalnum", All<IsLetterOrDigit>},
                              {"isspace", All<IsPythonSpace>},
                              {"isupper", IsCase<true>},
                              {"islower", IsCase<false>},
                              {"format", Format}};

Value DictItems(Run& run, const Value& self, Arguments& arguments) {
  Bind("items", arguments, {});
  List list;
  for (const auto& [key, value] : self.AsDict()->items) list.items.push_back(MakeTuple({key, value}));
  run.Step(list.items.size());
  return list;
}
Value DictKeys(Run& run, const Value& self, Arguments& arguments) {
  Bind("keys", arguments, {});
  return MakeList(ItemsOf(run, self));
}
Value DictValues(Run& run, const Value& self, Arguments& arguments) {
  Bind("values", arguments, {});
  List list;
  for (const auto& [key, value] : self.AsDict()->items) list.items.push_back(value);
  run.Step(list.items.size());
  return list;
}
Value DictGet(Run&, const Value& self, Arguments& arguments) {
  const auto given = Bind("get", arguments, {"key", "default"}, 1);
  const Value* found = self.AsDict()->Find(*given[0]);
  return found != nullptr ? *found : given[1] != nullptr ? *given[1] : Value();
}
Value Copy(Run&, const Value& self, Arguments& arguments) {
  Bind("copy", arguments, {});
  return self;  // neither the copy nor the original can change
}
[[noreturn]] Value Forbidden(Run&, const Value& self, Arguments&) {
  Fail(fmt::format("a template cannot change a {}; make a new one with + or a namespace", self.TypeName()));
}
const Methods kDictMethods = {{"items", DictItems},     {"keys", DictKeys},     {"values", DictValues},
                              {"get", DictGet},         {"copy", Copy},         {"update", Forbidden},
                              {"pop", Forbidden},       {"popitem", Forbidden}, {"clear", Forbidden},
                              {"setdefault", Forbidden}};

Value ListIndex(Run& run, const Value& self, Arguments& arguments) {
  const Value& item = *Bind("index", arguments, {"value"}, 1)[0];
  const auto& items = self.AsList()->items;
  run.Step(items.size());
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const Value& each) { return Equal(each, item); });
  if (found == items.end()) Fail("the value is not in the list");
  return static_cast<int64_t>(found - items.begin());
}
Value ListCount(Run& run, const Value& self, Arguments& arguments) {
  const Value& item = *Bind("count", arguments, {"value"}, 1)[0];
  const auto& items = self.AsList()->items;
  run.Step(items.size());
  return static_cast<int64_t>(
      std::count_if(items.begin(), items.end(), [&](const Value& each) { return Equal(each, item); }));
}
const Methods kListMethods = {{"index", ListIndex},  {"count", ListCount},  {"copy", Copy},
                              {"append", Forbidden}, {"extend", Forbidden}, {"insert", Forbidden},
                              {"remove", Forbidden}, {"pop", Forbidden},    {"clear", Forbidden},
                              {"sort", Forbidden},   {"reverse", Forbidden}};

}  // namespace

std::optional<Value> MethodOf(const Value& object, std::string_view name) {
  const Methods* methods = object.IsText()              ? &kTextMethods
                           : object.AsDict() != nullptr ? &kDictMethods
                           : object.AsList() != nullptr ? &kListMethods
                                                        : nullptr;
  if (methods == nullptr) return std::nullopt;
  const auto found = methods->find(name);
  if (found == methods->end()) return std::nullopt;
  return MakeFunction([self = object, method = found->second](
                          Run& run, Arguments& arguments) { return method(run, self, arguments); },
                      object.Height() + 1);
}

}  // namespace kevin::local::jinja
