#pragma once
// C++, CUDA C++ and Python as text: where literals and comments are, whether a text is complete, which functions
// it defines. No compiler: what cannot be read gives an empty answer. Linear in the text. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

// The text with blanks in place of comments and of the contents of literals: the same length and the same lines.
struct MaskedCode {
  std::string text;
  // A block comment, a raw string (in Python one in triple quotes), or a line of a comment or literal that a
  // backslash continues.
  bool ends_inside = false;
  bool ends_in_line = false;  // the last line has no end, and a comment or literal of this line is open
};
MaskedCode Mask(std::string_view code);
MaskedCode MaskPython(std::string_view code);

// Brackets balance, nothing is open, and the last token is `}` or `;`.
bool IsCompleteCode(std::string_view code);
// Brackets balance, and nothing is open.
bool IsCompletePython(std::string_view code);

// A function defined at the top level, also inside `extern "C" { }` and namespaces. `begin`: of its declaration,
// without a comment above it; `end`: behind its `}`.
struct FunctionText {
  std::string name;
  size_t begin = 0, end = 0;
};
std::vector<FunctionText> FunctionsIn(std::string_view code);

bool HasWord(std::string_view text, std::string_view word);  // an identifier

}  // namespace kevin
