#include "policies/local/text/jinja/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

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
  // d.ddde[+-]xx: the fewest digits that give the number back.
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

}  // namespace kevin::local::jinja
