#include "agent/code_text.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "agent/text.h"

namespace kevin {
namespace {

bool IsWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where the raw string that begins at `at` ("R\"") ends; npos: it does not.
size_t EndOfRawString(std::string_view code, size_t at) {
  const size_t open = code.find('(', at + 2);
  if (open == std::string_view::npos || open > at + 20) return std::string_view::npos;
  const std::string close = ")" + std::string(code.substr(at + 2, open - at - 2)) + "\"";
  const size_t end = code.find(close, open);
  return end == std::string_view::npos ? end : end + close.size();
}

struct Hidden {
  size_t end = 0;        // npos: it is not closed
  bool is_open = false;  // it ends with the text, in the middle of a line
};

// Of a comment of one line. A backslash at the end of a line continues it.
Hidden LineComment(std::string_view code, size_t at) {
  size_t end = code.find('\n', at);
  while (end != std::string_view::npos && end > at && code[end - 1] == '\\') end = code.find('\n', end + 1);
  if (end != std::string_view::npos) return {end, false};
  const bool is_continued = code.ends_with("\\\n");
  return {is_continued ? std::string_view::npos : code.size(), !code.ends_with('\n')};
}

// Of a literal with this quote; the end of its line if it is not closed.
Hidden Literal(std::string_view code, size_t at) {
  size_t end = at + 1;
  while (end < code.size() && code[end] != code[at] && code[end] != '\n') end += code[end] == '\\' ? 2 : 1;
  if (end < code.size()) return {end + (code[end] == code[at] ? 1 : 0), false};
  return {code.ends_with("\\\n") ? std::string_view::npos : code.size(), true};
}

bool IsDigitSeparator(std::string_view code, size_t at) {
  return code[at] == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(code[at - 1]));
}

// The comment or literal that begins at `at`; nullopt: none begins there.
std::optional<Hidden> HiddenAt(std::string_view code, size_t at) {
  const std::string_view rest = code.substr(at, 2);
  if (rest == "//") return LineComment(code, at);
  if (rest == "/*") {
    const size_t end = code.find("*/", at + 2);
    return Hidden{end == std::string_view::npos ? end : end + 2, false};
  }
  if (rest == "R\"" && (at == 0 || !IsWordCharacter(code[at - 1])))
    return Hidden{EndOfRawString(code, at), false};
  if ((code[at] == '"' || code[at] == '\'') && !IsDigitSeparator(code, at)) return Literal(code, at);
  return std::nullopt;
}

// The same of Python.
std::optional<Hidden> HiddenInPythonAt(std::string_view code, size_t at) {
  if (code[at] == '#') {
    const size_t end = code.find('\n', at);
    return end == std::string_view::npos ? Hidden{code.size(), true} : Hidden{end, false};
  }
  if (code[at] != '"' && code[at] != '\'') return std::nullopt;
  const std::string quotes(3, code[at]);
  if (code.substr(at, 3) != quotes) return Literal(code, at);
  size_t end = at + 3;
  while (end < code.size() && code.substr(end, 3) != quotes) end += code[end] == '\\' ? 2 : 1;
  return Hidden{end < code.size() ? end + 3 : std::string_view::npos, false};
}

template <typename HiddenFunction>
MaskedCode MaskBy(std::string_view code, const HiddenFunction& hidden_at) {
  MaskedCode masked;
  masked.text.reserve(code.size());
  for (size_t i = 0; i < code.size();) {
    const std::optional<Hidden> hidden = hidden_at(code, i);
    if (!hidden) {
      masked.text += code[i++];
      continue;
    }
    masked.ends_inside = hidden->end == std::string_view::npos;
    masked.ends_in_line = hidden->is_open && !masked.ends_inside;
    const size_t stop = masked.ends_inside ? code.size() : hidden->end;
    for (; i < stop; ++i) masked.text += code[i] == '\n' ? '\n' : ' ';
  }
  return masked;
}

bool HasBalancedBrackets(std::string_view masked) {
  std::string stack;
  for (const char c : masked) {
    if (c == '{' || c == '(' || c == '[') stack += c;
    if (c == '}' || c == ')' || c == ']') {
      const char wanted = c == '}' ? '{' : c == ')' ? '(' : '[';
      if (stack.empty() || stack.back() != wanted) return false;
      stack.pop_back();
    }
  }
  return stack.empty();
}

// Behind the bracket that closes the one at `open`; npos: none does. `text` is masked.
size_t BehindClosing(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

size_t EndOfDirective(std::string_view text, size_t at) {
  size_t end = text.find('\n', at);
  while (end != std::string_view::npos && end > 0 && text[end - 1] == '\\') end = text.find('\n', end + 1);
  return end == std::string_view::npos ? text.size() : end + 1;
}

// Of the declaration before a `{`: the word before the last pair of parentheses at its end. Empty: no function.
std::string NameInHead(std::string_view head) {
  const size_t close = head.rfind(')');
  if (close == std::string_view::npos) return "";
  const bool ends_well = std::all_of(head.begin() + static_cast<std::ptrdiff_t>(close) + 1, head.end(),
                                     [](char c) { return IsWordCharacter(c) || std::isspace(c) != 0; });
  size_t open = close, depth = 1;
  while (open > 0 && depth > 0) {
    --open;
    depth += head[open] == ')' ? 1 : 0;
    depth -= head[open] == '(' ? 1 : 0;
  }
  if (!ends_well || depth > 0) return "";
  std::string_view before = TrimRight(head.substr(0, open));
  size_t start = before.size();
  while (start > 0 && IsWordCharacter(before[start - 1])) --start;
  return std::string(before.substr(start));
}

bool IsTransparent(std::string_view head) {
  return HasWord(head, "namespace") || (HasWord(head, "extern") && head.find('(') == std::string_view::npos);
}

}  // namespace

MaskedCode Mask(std::string_view code) { return MaskBy(code, HiddenAt); }

MaskedCode MaskPython(std::string_view code) { return MaskBy(code, HiddenInPythonAt); }

bool IsCompleteCode(std::string_view code) {
  const MaskedCode masked = Mask(code);
  const std::string_view trimmed = TrimRight(masked.text);
  return !masked.ends_inside && HasBalancedBrackets(masked.text) && !trimmed.empty() &&
         (trimmed.back() == '}' || trimmed.back() == ';');
}

bool IsCompletePython(std::string_view code) {
  const MaskedCode masked = MaskPython(code);
  return !masked.ends_inside && HasBalancedBrackets(masked.text) && !TrimRight(masked.text).empty();
}

std::vector<FunctionText> FunctionsIn(std::string_view code) {
  const std::string text = Mask(code).text;
  std::vector<FunctionText> functions;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '#') {
      start = EndOfDirective(text, i);
      i = start - 1;
    } else if (text[i] == ';' || text[i] == '}') {
      start = i + 1;
    } else if (text[i] == '{') {
      const std::string_view head = std::string_view(text).substr(start, i - start);
      if (IsTransparent(head)) {
        start = i + 1;
        continue;
      }
      const size_t end = BehindClosing(text, i);
      if (end == std::string_view::npos) return functions;
      const std::string name = NameInHead(head);
      const size_t begin = text.find_first_not_of(" \t\n", start);
      if (!name.empty()) functions.push_back({name, begin, end});
      // An initialiser or a class ends with its semicolon.
      if (!name.empty()) start = end;
      i = end - 1;
    }
  }
  return functions;
}

bool HasWord(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !IsWordCharacter(text[at - 1]);
    if (begins && (end == text.size() || !IsWordCharacter(text[end]))) return true;
  }
  return false;
}

}  // namespace kevin
