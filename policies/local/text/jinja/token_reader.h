#pragma once
// Where a parser stands in its tokens, and how deep.

#include <string>
#include <string_view>
#include <vector>

#include "policies/local/text/jinja/lexer.h"

namespace kevin::local::jinja {

class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, int most_depth)
      : tokens_(std::move(tokens)), most_depth_(most_depth) {}

  const Token& Now() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token Next();                                               // the last one again and again
  bool Is(TokenKind kind, std::string_view text = {}) const;  // empty text: any
  bool IsOperator(std::string_view text) const { return Is(TokenKind::kOperator, text); }
  bool IsName(std::string_view text) const { return Is(TokenKind::kName, text); }
  bool Skip(TokenKind kind, std::string_view text = {});  // if it is there
  bool SkipOperator(std::string_view text) { return Skip(TokenKind::kOperator, text); }
  bool SkipName(std::string_view text) { return Skip(TokenKind::kName, text); }
  Token Expect(TokenKind kind, std::string_view text = {});
  void ExpectOperator(std::string_view text) { Expect(TokenKind::kOperator, text); }

  [[noreturn]] void Fail(const std::string& reason) const;  // at the current line
  std::string Describe() const;                             // the current token

  class Deeper {  // throws when it gets too deep
   public:
    explicit Deeper(TokenReader& reader);
    ~Deeper() { --reader_.depth_; }

   private:
    TokenReader& reader_;
  };

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, most_depth_;
};

}  // namespace kevin::local::jinja
