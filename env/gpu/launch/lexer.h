#pragma once
// The text of a candidate, its tokens, and its preprocessed form. In this folder a place is a byte offset
// into the text.

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "env/problem/expression.h"

namespace kevin::launch {

// The text of a candidate; makes messages that point into it.
class SourceText {
 public:
  explicit SourceText(std::string text);
  const std::string& text() const { return text_; }
  int Line(size_t offset) const;    // from 1
  int Column(size_t offset) const;  // in bytes, from 1

  // Throws LaunchException: "line 3, column 7: WHAT", the line and a caret.
  [[noreturn]] void Fail(size_t offset, const std::string& what) const;

 private:
  std::string Quote(size_t offset) const;

  std::string text_;
  std::vector<size_t> line_starts_;
};

// C++ tokens with their places. Lexing never fails: a malformed token (an open string, a stray byte) has the
// kind kBroken and a text that says why, so that it matters only where it is read. A '>' never joins with
// another '>', since it may close template arguments: see Token::glued.
enum class TokenKind { kName, kNumber, kString, kCharacter, kPunctuator, kBroken, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;           // without line continuations
  size_t begin = 0, end = 0;  // in the candidate's text; of a macro's expansion, where it was invoked
  bool first_on_line = false;
  bool glued = false;  // directly behind the previous token
  // The macros that made it; they do not expand again.
  std::shared_ptr<const std::set<std::string>> expanded_from;

  bool Is(const char* punctuator_or_name) const {
    return (kind == TokenKind::kPunctuator || kind == TokenKind::kName) && text == punctuator_or_name;
  }
  bool IsName() const { return kind == TokenKind::kName; }
};

// Ends with a token of kind kEnd.
std::vector<Token> Lex(const std::string& text);

// The values of number and character literals.
__extension__ typedef __int128 Integer;  // holds every value of every integer type, and sums of two

struct Number {
  Integer integer = 0;
  double floating = 0;
  bool is_floating = false;
  std::string type;   // "int", "unsigned long", "float", ...
  std::string error;  // empty: valid
};
Number ReadNumber(const std::string& text);     // without digit separators
Number ReadCharacter(const std::string& text);  // with its quotes

std::string ToText(Integer value);

// The preprocessor of the host side: #define (both forms, nested, variadic), #undef and the conditionals, in
// which the size symbols of the problem have their values. `#` and `##` inside a macro become a kBroken
// token; #include, #pragma, #error and #line are skipped.
struct Macro {
  bool function_like = false, variadic = false;
  std::vector<std::string> parameters;  // without `...`
  std::vector<Token> body;
};
using Macros = std::map<std::string, Macro>;

struct Preprocessed {
  std::vector<Token> tokens;  // ends with kEnd
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> directives;  // places in the text
  bool includes = false;          // of other than the usual system headers: names may come from there
};

// Throws LaunchException for malformed directives and endless macro expansion.
Preprocessed Preprocess(const SourceText& source, const Symbols& symbols);

// Macro expansion of `tokens` (no kEnd). `budget`: how many tokens may still be made.
std::vector<Token> ExpandMacros(const SourceText& source, const Macros& macros, std::vector<Token> tokens,
                                int64_t* budget);

// The value of the controlling expression of an #if, from macro-expanded tokens.
int64_t EvaluateCondition(const SourceText& source, const std::vector<Token>& tokens, const Symbols& symbols,
                          size_t directive);

}  // namespace kevin::launch
