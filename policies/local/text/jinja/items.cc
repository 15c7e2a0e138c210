#include <fmt/format.h>

#include <algorithm>

#include "policies/local/text/jinja/operators.h"
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

}  // namespace kevin::local::jinja
