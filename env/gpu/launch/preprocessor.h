#pragma once
// What C++'s preprocessor does, for the host side: #define (both forms, nested, variadic), #undef and the
// conditionals, in which the problem's size symbols have their values. `#` and `##` inside a macro become a
// kBroken token; #include, #pragma, #error and #line are passed over.

#include <map>
#include <utility>
#include <vector>

#include "env/gpu/launch/lexer.h"
#include "env/gpu/launch/source_text.h"
#include "env/problem/expression.h"

namespace kevin::launch {

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
  bool includes = false;          // something other than the usual system headers: names may come from there
};

// Throws LaunchException for broken directives and macros that expand without end.
Preprocessed Preprocess(const SourceText& source, const Symbols& symbols);

// Macro expansion of `tokens` (no kEnd). `budget` counts down the tokens that may still be made.
std::vector<Token> ExpandMacros(const SourceText& source, const Macros& macros, std::vector<Token> tokens,
                                int64_t* budget);

// The value of the controlling expression of an #if, its tokens macro-expanded already.
int64_t EvaluateCondition(const SourceText& source, const std::vector<Token>& tokens, const Symbols& symbols,
                          size_t directive);

}  // namespace kevin::launch
