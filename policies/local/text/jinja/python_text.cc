#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "policies/local/text/jinja/value.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {

namespace {

constexpr int kDeepest = 200;

std::string QuotedText(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string result(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    const char32_t c = character.code;
    const int category = UnicodeCategory(c);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c != ' ' &&
               (category == 0 || category >= 23)) {  // unassigned, separators, controls, private use
      const auto code = static_cast<uint32_t>(c);
      result += c < 0x100     ? fmt::format("\\x{:02x}", code)
                : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    } else {
      result.append(text, at, character.length);
    }
    at += character.length;
  }
  return result += quote;
}

std::string JsonText(std::string_view text, bool ascii) {
  std::string result = "\"";
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    const char32_t c = character.code;
    constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const size_t known = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      result += '\\';
      result += kLetters[known];
    } else if (c >= 0x10000 && ascii) {
      const auto rest = static_cast<uint32_t>(c - 0x10000);
      result += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else if (c < 0x20 || (c >= 0x7F && ascii)) {
      result += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      result.append(text, at, character.length);
    }
    at += character.length;
  }
  return result += '"';
}

class Writer {
 public:
  explicit Writer(Run& run) : run_(run) {}
  std::string text;

  void Add(std::string_view more) {
    if (text.size() + more.size() > run_.limits().text_bytes) Fail("a value is too large to be written");
    run_.Step(1 + more.size() / 16);
    text += more;
  }

  void Repr(const Value& value, int depth) {
    if (depth > kDeepest) Fail("a value is nested too deep");
    if (value.AsText() != nullptr) return Add(QuotedText(*value.AsText()));
    if (const List* list = value.AsList()) {
      Add(list->tuple ? "(" : "[");
      for (size_t i = 0; i < list->items.size(); ++i) {
        if (i > 0) Add(", ");
        Repr(list->items[i], depth + 1);
      }
      return Add(!list->tuple ? "]" : list->items.size() == 1 ? ",)" : ")");
    }
    if (value.AsNamespace() != nullptr) Add("<Namespace ");
    const Dict* dict = value.AsNamespace() != nullptr ? &value.AsNamespace()->fields : value.AsDict();
    if (dict == nullptr) return Add(Scalar(value));
    Add("{");
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) Add(", ");
      Repr(dict->items[i].first, depth + 1);
      Add(": ");
      Repr(dict->items[i].second, depth + 1);
    }
    Add(value.AsNamespace() != nullptr ? "}>" : "}");
  }

  void Json(const Value& value, const JsonLayout& layout, int depth) {
    if (depth > kDeepest) Fail("a value is nested too deep");
    if (value.AsText() != nullptr) return Add(JsonText(*value.AsText(), layout.ascii));
    if (const List* list = value.AsList()) {
      return JsonItems("[]", layout, depth, list->items.size(),
                       [&](size_t i) { Json(list->items[i], layout, depth + 1); });
    }
    if (const Dict* dict = value.AsDict()) {
      auto items = dict->items;
      if (layout.sort_keys) {
        std::stable_sort(items.begin(), items.end(),
                         [](const auto& a, const auto& b) { return Compare(a.first, b.first, "<") < 0; });
      }
      return JsonItems("{}", layout, depth, items.size(), [&](size_t i) {
        const Value& key = items[i].first;
        Add(JsonText(key.IsText() ? *key.AsText() : JsonScalar(key), layout.ascii));
        Add(layout.key_separator);
        Json(items[i].second, layout, depth + 1);
      });
    }
    Add(JsonScalar(value));
  }

 private:
  template <typename Item>
  void JsonItems(const char* brackets, const JsonLayout& layout, int depth, size_t count, Item item) {
    const auto new_line = [&](int level) {
      if (!layout.indent || count == 0) return;
      Add("\n");
      for (int i = 0; i < level; ++i) Add(*layout.indent);
    };
    Add(std::string_view(brackets, 1));
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) Add(layout.item_separator);
      new_line(depth + 1);
      item(i);
    }
    new_line(depth);
    Add(std::string_view(brackets + 1, 1));
  }

  static std::string Scalar(const Value& value) {
    if (value.IsUndefined()) return "Undefined";
    if (value.IsNone()) return "None";
    if (value.Is<bool>()) return value.Truth() ? "True" : "False";
    if (value.Is<int64_t>()) return std::to_string(value.Integer());
    if (value.Is<double>()) return FloatText(value.Number());
    return "<function>";
  }

  static std::string JsonScalar(const Value& value) {
    if (value.IsNone()) return "null";
    if (value.Is<bool>()) return value.Truth() ? "true" : "false";
    if (value.Is<int64_t>()) return std::to_string(value.Integer());
    if (!value.Is<double>())
      Fail(fmt::format("Object of type {} is not JSON serializable", value.TypeName()));
    const double number = value.Number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return FloatText(number);
  }

  Run& run_;
};

}  // namespace

std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[32];
  // d.ddde[+-]xx: the shortest digits that read back as the number.
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string sign;
  if (text.front() == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + digits;
  if (count <= exponent + 1) return sign + digits + std::string(exponent + 1 - count, '0') + ".0";
  return sign + digits.insert(exponent + 1, ".");
}

std::string Str(Run& run, const Value& value) {
  if (value.IsUndefined()) return "";
  if (value.IsText()) return *value.AsText();
  return Repr(run, value);
}

std::string Repr(Run& run, const Value& value) {
  Writer writer(run);
  writer.Repr(value, 0);
  return std::move(writer.text);
}

std::string ToJson(Run& run, const Value& value, const JsonLayout& layout) {
  Writer writer(run);
  writer.Json(value, layout, 0);
  return std::move(writer.text);
}

// "{}".format(...) and "%s" % ...

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
