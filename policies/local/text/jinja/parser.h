#pragma once
// From a template's text to its tree: Lex makes tokens, ExpressionParser reads expressions, Parse reads
// statements. Every failure is a TemplateError with its line.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policies/local/text/jinja/template.h"
#include "policies/local/text/jinja/tree.h"

namespace kevin::local::jinja {

Body Parse(std::string_view source, const Limits& limits);

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
  std::string text;  // of a string: its value, escapes resolved
  int64_t integer = 0;
  double number = 0;
};

// White space is treated as with trim_blocks and lstrip_blocks; a line feed at the end of the source is
// dropped. The last token is kEnd.
std::vector<Token> Lex(std::string_view source, const Limits& limits);

// A position in the tokens, and the current depth of nesting.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, int most_depth)
      : tokens_(std::move(tokens)), most_depth_(most_depth) {}

  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token Next();                                               // returns the last token again and again
  bool Is(TokenKind kind, std::string_view text = {}) const;  // empty text: any
  bool IsOperator(std::string_view text) const { return Is(TokenKind::kOperator, text); }
  bool IsName(std::string_view text) const { return Is(TokenKind::kName, text); }
  bool Skip(TokenKind kind, std::string_view text = {});  // true if it was there
  bool SkipOperator(std::string_view text) { return Skip(TokenKind::kOperator, text); }
  bool SkipName(std::string_view text) { return Skip(TokenKind::kName, text); }
  Token Expect(TokenKind kind, std::string_view text = {});
  void ExpectOperator(std::string_view text) { Expect(TokenKind::kOperator, text); }

  [[noreturn]] void Fail(const std::string& reason) const;  // at the current line
  std::string Describe() const;                             // the current token

  // One level of nesting. Throws when the limit is exceeded.
  class Deeper {
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

// Expressions, in Jinja's order of precedence.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& reader) : reader_(reader) {}

  ExpressionPtr Parse(bool with_condition = true);       // one
  ExpressionPtr ParseTuple(bool with_condition = true);  // one, or several with commas
  ArgumentList ParseArguments(int& height);              // at a parenthesis

  // All names read since the set was last emptied.
  std::set<std::string> names_seen;

 private:
  ExpressionPtr ParseCondition();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseComparison();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcatenation();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters = true);
  ExpressionPtr ParsePostfix(ExpressionPtr node);  // .name, [index] and (arguments) after it
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseName();
  ExpressionPtr ParseParenthesis();
  ExpressionPtr ParseListDisplay();
  ExpressionPtr ParseDictDisplay();
  ExpressionPtr ParseField(ExpressionPtr object);
  ExpressionPtr ParseItem(ExpressionPtr object);
  ExpressionPtr ParseFilter(ExpressionPtr subject);
  ExpressionPtr ParseTest(ExpressionPtr subject);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  ExpressionPtr Infix(Operator op, ExpressionPtr left, ExpressionPtr right);
  void Grow(Expression& node, int height);

  template <typename Node>
  std::unique_ptr<Node> New() {
    auto node = std::make_unique<Node>();
    node->line = reader_.Current().line;
    return node;
  }

  TokenReader& reader_;
};

}  // namespace kevin::local::jinja
