#include "tools/export/quote.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/printable.h"

namespace kevin {
namespace {

constexpr size_t kMaxNameBytes = 120;

bool IsPlain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// Calls `use(code, bytes)` for each character; a byte that is no UTF-8 is U+FFFD.
template <typename Use>
void ForEachCharacter(std::string_view text, const Use& use) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    c.is_valid ? use(c.code, text.substr(at, c.bytes)) : use(0xfffd, std::string_view("\xef\xbf\xbd"));
    at += c.bytes;
  }
}

// Nothing in it ends or changes r'''...'''.
bool FitsRawText(std::string_view text) {
  if (text.empty() || text.back() == '\'' || text.back() == '\\') return false;
  if (text.find("'''") != std::string_view::npos) return false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    if (!c.is_valid || (IsHidden(c.code) && c.code != '\n' && c.code != '\t')) return false;
    at += c.bytes;
  }
  return true;
}

// An encoding is declared by "coding:" or "coding=" in a comment of the first two lines: bytes that follow
// would be read as another text.
std::string WithoutEncoding(std::string text) {
  constexpr std::string_view kCoding = "coding";
  for (size_t at = text.find(kCoding); at != std::string::npos; at = text.find(kCoding, at + 1)) {
    const size_t end = at + kCoding.size();
    if (end < text.size() && (text[end] == ':' || text[end] == '=')) text.insert(end, " ");
  }
  return text;
}

// A backslash at the end (also before spaces, also as the trigraph ??/) continues a comment on the next line.
std::string WithoutContinuation(std::string text) {
  while (!text.empty()) {
    if (text.back() == '\\' || text.back() == ' ') {
      text.pop_back();
    } else if (text.ends_with("?\?/")) {
      text.resize(text.size() - 3);
    } else {
      break;
    }
  }
  return text;
}

}  // namespace

std::string PythonString(std::string_view text) {
  std::string literal = "\"";
  ForEachCharacter(text, [&](uint32_t code, std::string_view bytes) {
    if (code == '\n') {
      literal += "\\n";
    } else if (code == '"' || code == '\\') {
      literal += '\\';
      literal += bytes;
    } else if (IsHidden(code)) {
      literal += CharacterEscape(code);
    } else {
      literal += bytes;
    }
  });
  return literal + "\"";
}

std::string PythonText(std::string_view text) {
  if (FitsRawText(text)) return "r'''" + std::string(text) + "'''";
  std::string literal = "(\n";
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size() - 1) + 1;
    literal += "    " + PythonString(text.substr(start, end - start)) + "\n";
    start = end;
  }
  return text.empty() ? "\"\"" : literal + ")";
}

std::string PythonComments(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += "# " + WithoutEncoding(PrintableLine(text)) + "\n";
  return lines;
}

std::string CppComments(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += "// " + WithoutContinuation(PrintableLine(text)) + "\n";
  return lines;
}

std::string CppString(std::string_view text) {
  std::string literal = "\"";
  ForEachCharacter(text, [&](uint32_t code, std::string_view bytes) {
    if (code == '"' || code == '\\' || code == '?') {
      literal += '\\';
      literal += bytes;
    } else if (IsHidden(code)) {
      for (const char c : bytes) literal += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    } else {
      literal += bytes;
    }
  });
  return literal + "\"";
}

std::string MarkdownLines(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += "    " + PrintableLine(text) + "\n";
  return lines;
}

std::string Identifier(std::string_view prefix, std::string_view text) {
  std::string name(text.substr(0, kMaxNameBytes - std::min(prefix.size(), kMaxNameBytes)));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !IsPlain(c); }, '_');
  return std::string(prefix) + name;
}

}  // namespace kevin
