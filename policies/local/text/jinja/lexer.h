#pragma once
// A template's text to tokens, with Jinja's treatment of white space as transformers sets it up: trim_blocks
// and lstrip_blocks are on, a line feed at the end of the template is dropped.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policies/local/text/jinja/limits.h"

namespace kevin::local::jinja {

enum class TokenKind {
  kData,  // text to print
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // of a string: what it means
  int64_t integer = 0;
  double number = 0;
};

// The last token is kEnd. Throws TemplateError with its line.
std::vector<Token> Lex(std::string_view source, const Limits& limits);

}  // namespace kevin::local::jinja
