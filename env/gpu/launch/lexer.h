#pragma once
// C++ tokens with their places. Never fails: what is no token (an open string, a stray byte) becomes a token
// of kind kBroken whose text says what is wrong, so that it only matters where somebody reads it.
// A '>' never joins with another '>', since it may close template arguments: see Token::glued.

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace kevin::launch {

enum class TokenKind { kName, kNumber, kString, kCharacter, kPunctuator, kBroken, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;           // without line continuations
  size_t begin = 0, end = 0;  // in the candidate's text; of a macro's expansion, where it was invoked
  bool first_on_line = false;
  bool glued = false;  // nothing between this and the token before
  std::shared_ptr<const std::set<std::string>>
      expanded_from;  // macros that made it (they do not expand again)

  bool Is(const char* punctuator_or_name) const {
    return (kind == TokenKind::kPunctuator || kind == TokenKind::kName) && text == punctuator_or_name;
  }
  bool IsName() const { return kind == TokenKind::kName; }
};

// Ends with a token of kind kEnd.
std::vector<Token> Lex(const std::string& text);

}  // namespace kevin::launch
