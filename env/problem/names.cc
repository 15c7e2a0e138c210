#include "env/problem/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "env/printable.h"

namespace kevin {

namespace {

// Reserved words of C++, Python and TorchScript that could be chosen as the name of a tensor or a size.
// clang-format off
constexpr std::string_view kReserved[] = {
    "alignas", "alignof", "and", "and_eq", "as", "asm", "assert", "async", "auto", "await", "bitand",
    "bitor", "bool", "break", "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class",
    "co_await", "co_return", "co_yield", "compl", "concept", "const", "const_cast", "consteval",
    "constexpr", "constinit", "continue", "decltype", "def", "default", "del", "delete", "do", "double",
    "dynamic_cast", "elif", "else", "enum", "except", "explicit", "export", "extern", "false", "finally",
    "float", "for", "forward", "friend", "from", "global", "goto", "if", "import", "in", "inline", "int",
    "is", "lambda", "launch", "long", "mutable", "namespace", "new", "noexcept", "nonlocal", "not",
    "not_eq", "nullptr", "operator", "or", "or_eq", "pass", "private", "protected", "public", "raise",
    "register", "reinterpret_cast", "requires", "return", "self", "short", "signed", "sizeof", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local", "throw",
    "torch", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "with", "xor", "xor_eq", "yield", "None", "True", "False",
};
// clang-format on
constexpr size_t kMaxNameBytes = 100, kMaxIdBytes = 200, kMaxSizeBytes = 64;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWordPart(char c) { return IsLetter(c) || (c >= '0' && c <= '9'); }

// A text in a message: no longer than people read.
std::string Shown(std::string_view text) {
  constexpr size_t kMostBytes = 80;
  return PrintableLine(text.size() > kMostBytes ? std::string(text.substr(0, kMostBytes)) + "..."
                                                : std::string(text));
}

// Components of a path with '/' between them; also one word of a command.
bool ArePathParts(std::string_view text) {
  for (size_t start = 0; start <= text.size();) {
    const std::string_view part = text.substr(start, std::min(text.find('/', start), text.size()) - start);
    if (part.empty() || part[0] == '.' || part[0] == '-') return false;
    if (!std::all_of(part.begin(), part.end(),
                     [](char c) { return IsWordPart(c) || c == '-' || c == '.' || c == '+'; }))
      return false;
    start += part.size() + 1;
  }
  return true;
}

}  // namespace

std::string WhyNoName(std::string_view name) {
  if (name.empty() || !IsLetter(name[0]) || !std::all_of(name.begin(), name.end(), IsWordPart)) {
    return fmt::format("'{}' is not a name (letters, digits and _)", Shown(name));
  }
  if (name.size() > kMaxNameBytes)
    return fmt::format("'{}' is longer than {} bytes", Shown(name), kMaxNameBytes);
  if (name.starts_with("__")) return fmt::format("'{}' begins with __, as names of compilers do", name);
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    return fmt::format("'{}' is a reserved word", name);
  }
  return "";
}

std::string WhyNoId(std::string_view id) {
  if (id.size() > kMaxIdBytes) return fmt::format("'{}' is longer than {} bytes", Shown(id), kMaxIdBytes);
  if (ArePathParts(id)) return "";
  return fmt::format("'{}' is not an id (letters, digits, _ - . and +, in parts with / between them)",
                     Shown(id));
}

std::string WhyNoSize(std::string_view name) {
  if (name.size() <= kMaxSizeBytes && ArePathParts(name)) return "";
  return fmt::format("'{}' is not the name of a size (letters, digits, _ - . and +, at most {} bytes)",
                     Shown(name), kMaxSizeBytes);
}

std::string WhyNoLine(std::string_view text, size_t most) {
  if (text.size() > most) return fmt::format("'{}' is longer than {} bytes", Shown(text), most);
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    if (!c.is_valid || IsHidden(c.code)) return fmt::format("'{}' has a hidden character", Shown(text));
    at += c.bytes;
  }
  return "";
}

}  // namespace kevin
