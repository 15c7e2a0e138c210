#include "env/problem/problem_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace kevin {
namespace {

// Words that C++ or TorchScript keeps for itself and a person might take for a tensor or a size.
constexpr std::string_view kReserved[] = {
    "and",    "as",     "assert",   "auto",   "bool",     "break",   "case",    "char",     "class",
    "const",  "def",    "default",  "delete", "do",       "double",  "else",    "enum",     "except",
    "export", "extern", "float",    "for",    "forward",  "from",    "global",  "goto",     "if",
    "import", "in",     "inline",   "int",    "is",       "lambda",  "launch",  "long",     "namespace",
    "new",    "not",    "operator", "or",     "pass",     "private", "public",  "raise",    "register",
    "return", "short",  "signed",   "sizeof", "static",   "struct",  "switch",  "template", "this",
    "torch",  "try",    "typedef",  "union",  "unsigned", "using",   "virtual", "void",     "volatile",
    "while",  "with",   "xor",      "yield"};

}  // namespace

std::string WhyNoName(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_part = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  if (name.empty() || !is_letter(name[0]) || !std::all_of(name.begin(), name.end(), is_part)) {
    return fmt::format("'{}' is not a name (letters, digits and _)", name);
  }
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    return fmt::format("'{}' is a reserved word", name);
  }
  return "";
}

}  // namespace kevin
