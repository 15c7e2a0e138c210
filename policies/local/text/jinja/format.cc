// "{}".format(...) and "%s" % ...
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "policies/local/text/jinja/operators.h"
#include "policies/local/text/jinja/python_text.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {
namespace {

// One %-directive: flags, width, precision, letter.
struct Directive {
  bool minus = false, zero = false, plus = false;
  int width = 0, precision = -1;
  char letter = 0;
};

int Digits(std::string_view format, size_t& at) {
  int number = 0;
  while (at < format.size() && format[at] >= '0' && format[at] <= '9') {
    number = number * 10 + (format[at++] - '0');
    if (number > 1000) Fail("a width in a format is too large");
  }
  return number;
}

Directive ReadDirective(std::string_view format, size_t& at) {
  Directive directive;
  for (; at < format.size(); ++at) {
    if (format[at] == '-') {
      directive.minus = true;
    } else if (format[at] == '0') {
      directive.zero = true;
    } else if (format[at] == '+') {
      directive.plus = true;
    } else {
      break;
    }
  }
  directive.width = Digits(format, at);
  if (at < format.size() && format[at] == '.') directive.precision = Digits(format, ++at);
  if (at == format.size()) Fail("incomplete format");
  directive.letter = format[at++];
  return directive;
}

int64_t AsInteger(const Value& value) {
  if (value.IsInteger()) return value.Integer();
  if (!value.IsNumber()) Fail(fmt::format("a number is wanted in the format, not a {}", value.TypeName()));
  if (!(std::abs(value.Number()) < 9e18)) Fail("a number is too large");
  return static_cast<int64_t>(value.Number());
}

std::string Converted(Run& run, const Directive& directive, const Value& value) {
  switch (directive.letter) {
    case 's':
    case 'r': {
      const std::string text = directive.letter == 's' ? Str(run, value) : Repr(run, value);
      return directive.precision < 0
                 ? text
                 : text.substr(0, CharacterOffset(text, static_cast<size_t>(directive.precision)));
    }
    case 'd':
    case 'i':
      return std::to_string(AsInteger(value));
    case 'x':
      return fmt::format("{:x}", AsInteger(value));
    case 'X':
      return fmt::format("{:X}", AsInteger(value));
    case 'f': {
      if (!value.IsNumber())
        Fail(fmt::format("a number is wanted in the format, not a {}", value.TypeName()));
      return fmt::format("{:.{}f}", value.Number(), directive.precision < 0 ? 6 : directive.precision);
    }
    default:
      Fail(fmt::format("unsupported format character '{}'", directive.letter));
  }
}

std::string Padded(const Directive& directive, std::string text) {
  const bool number = directive.letter != 's' && directive.letter != 'r';
  const bool negative = text.starts_with('-');
  if (number && directive.plus && !negative) text.insert(0, "+");
  const size_t length = CountCharacters(text), width = static_cast<size_t>(directive.width);
  if (length >= width) return text;
  if (directive.minus) return text + std::string(width - length, ' ');
  if (!number || !directive.zero) return std::string(width - length, ' ') + text;
  return text.insert(negative || directive.plus ? 1 : 0, width - length, '0');
}

}  // namespace

std::string FormatPercent(Run& run, std::string_view format, const Value& arguments) {
  const List* list = arguments.AsList();
  const std::vector<Value> values =
      list != nullptr && list->tuple ? list->items : std::vector<Value>{arguments};
  std::string result;
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      result += format[at++];
      continue;
    }
    ++at;
    const Value* value = nullptr;
    if (at < format.size() && format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == std::string_view::npos || arguments.AsDict() == nullptr) Fail("format requires a mapping");
      value = arguments.AsDict()->Find(format.substr(at + 1, end - at - 1));
      if (value == nullptr) Fail("a key of the format is missing");
      at = end + 1;
    }
    const Directive directive = ReadDirective(format, at);
    if (directive.letter == '%') {
      result += '%';
      continue;
    }
    if (value == nullptr) {
      if (next == values.size()) Fail("not enough arguments for format string");
      value = &values[next++];
    }
    const std::string text = Padded(directive, Converted(run, directive, *value));
    run.Reserve(result.size() + text.size());
    result += text;
  }
  if (next < values.size() && arguments.AsDict() == nullptr) {
    Fail("not all arguments converted during string formatting");
  }
  return result;
}

std::string FormatBraces(Run& run, std::string_view format, const Arguments& arguments) {
  std::string result;
  size_t next = 0;
  for (size_t at = 0; at < format.size();) {
    const char c = format[at++];
    const bool doubled = at < format.size() && format[at] == c;
    if ((c != '{' && c != '}') || doubled) {
      result += c;
      if (c == '{' || c == '}') ++at;
      continue;
    }
    const size_t end = c == '{' ? format.find('}', at) : std::string_view::npos;
    if (end == std::string_view::npos) Fail("a single brace in a format");
    const std::string_view name = format.substr(at, end - at);
    at = end + 1;
    const Value* value = nullptr;
    size_t index = next;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (name.empty() || (error == std::errc() && stop == name.data() + name.size())) {
      next = index + 1;
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const auto& [known, each] : arguments.named) {
        if (known == name) value = &each;
      }
    }
    if (value == nullptr) Fail(fmt::format("nothing for '{{{}}}' in a format", name));
    const std::string text = Str(run, *value);
    run.Reserve(result.size() + text.size());
    result += text;
  }
  return result;
}

}  // namespace kevin::local::jinja
