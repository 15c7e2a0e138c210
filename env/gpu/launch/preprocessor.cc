#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "env/gpu/launch/lexer.h"

namespace kevin::launch {
namespace {

constexpr int64_t kExpansionBudget = 2'000'000;  // tokens

class Preprocessor {
 public:
  Preprocessor(const SourceText& source, const Symbols& symbols) : source_(source), symbols_(symbols) {
    Define("__CUDACC__", "1");
    Define("__CUDACC_RTC__", "1");
    Define("__cplusplus", "201703L");
  }

  Preprocessed Run() {
    const std::vector<Token> tokens = Lex(source_.text());
    size_t i = 0;
    while (tokens[i].kind != TokenKind::kEnd) {
      const bool directive = tokens[i].first_on_line && tokens[i].Is("#");
      size_t end = i + 1;
      while (tokens[end].kind != TokenKind::kEnd &&
             !(tokens[end].first_on_line && (directive || tokens[end].Is("#")))) {
        ++end;
      }
      std::vector<Token> run(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                             tokens.begin() + static_cast<std::ptrdiff_t>(end));
      if (directive) {
        Directive(run);
      } else if (Active()) {
        for (Token& token : ExpandMacros(source_, macros_, std::move(run), &budget_)) {
          result_.tokens.push_back(std::move(token));
        }
      }
      i = end;
    }
    if (!conditionals_.empty()) {
      source_.Fail(conditionals_.back().at, "this conditional is never closed; write #endif");
    }
    result_.tokens.push_back(tokens.back());
    return std::move(result_);
  }

 private:
  struct Conditional {
    size_t at;
    bool active, taken, parent_active, seen_else;
  };

  bool Active() const { return conditionals_.empty() || conditionals_.back().active; }

  void Define(const std::string& name, const std::string& value) {
    Macro macro;
    macro.body = Lex(value);
    macro.body.pop_back();
    macros_[name] = std::move(macro);
  }

  void Directive(const std::vector<Token>& tokens) {
    result_.directives.push_back({tokens.front().begin, tokens.back().end});
    if (tokens.size() < 2) return;
    const std::string& name = tokens[1].text;
    if (name == "if" || name == "ifdef" || name == "ifndef") {
      const bool active = Active();
      const bool holds = active && Holds(name, tokens);
      conditionals_.push_back({tokens[0].begin, holds, holds, active, false});
    } else if (name == "elif" || name == "elifdef" || name == "elifndef" || name == "else" ||
               name == "endif") {
      Branch(name, tokens);
    } else if (Active() && name == "define") {
      DefineMacro(tokens);
    } else if (Active() && name == "undef" && tokens.size() > 2) {
      macros_.erase(tokens[2].text);
    } else if (Active() && name == "include") {
      result_.includes |= tokens.size() > 2 && !UsualHeader(tokens);
    }
  }

  void Branch(const std::string& name, const std::vector<Token>& tokens) {
    if (conditionals_.empty()) {
      source_.Fail(tokens[0].begin, fmt::format("#{} without an #if before it; remove it", name));
    }
    Conditional& conditional = conditionals_.back();
    if (name == "endif") {
      conditionals_.pop_back();
      return;
    }
    if (conditional.seen_else) {
      source_.Fail(tokens[0].begin, fmt::format("#{} after #else; write #endif first", name));
    }
    conditional.seen_else = name == "else";
    conditional.active = false;
    if (conditional.taken || !conditional.parent_active) return;
    const bool holds = name == "else" || Holds(name.substr(2), tokens);
    conditional.active = conditional.taken = holds;
  }

  bool Holds(const std::string& name, const std::vector<Token>& tokens) {
    if (name == "if") return EvaluateCondition(source_, ConditionTokens(tokens), symbols_, tokens[0].begin);
    if (tokens.size() < 3) source_.Fail(tokens[0].begin, fmt::format("#{} needs a name", name));
    return Defined(tokens[2].text) == (name == "ifdef");
  }

  bool Defined(const std::string& name) const { return macros_.contains(name) || symbols_.contains(name); }

  // `defined X` is answered before macros expand.
  std::vector<Token> ConditionTokens(const std::vector<Token>& tokens) {
    std::vector<Token> result;
    for (size_t i = 2; i < tokens.size(); ++i) {
      result.push_back(tokens[i]);
      if (!tokens[i].Is("defined")) continue;
      const bool parenthesised = i + 1 < tokens.size() && tokens[i + 1].Is("(");
      const size_t at = i + (parenthesised ? 2 : 1);
      if (at >= tokens.size() || (parenthesised && (at + 1 >= tokens.size() || !tokens[at + 1].Is(")")))) {
        source_.Fail(tokens[i].begin, "`defined` needs a name; write defined(NAME)");
      }
      result.back().kind = TokenKind::kNumber;
      result.back().text.assign(1, Defined(tokens[at].text) ? '1' : '0');
      i = at + (parenthesised ? 1 : 0);
    }
    return ExpandMacros(source_, macros_, std::move(result), &budget_);
  }

  void DefineMacro(const std::vector<Token>& tokens) {
    if (tokens.size() < 3 || !tokens[2].IsName()) {
      source_.Fail(tokens[0].begin, "#define needs a name; write #define NAME VALUE");
    }
    Macro macro;
    size_t body = 3;
    if (body < tokens.size() && tokens[body].Is("(") && tokens[body].glued) {
      macro.function_like = true;
      for (++body; body < tokens.size() && !tokens[body].Is(")"); ++body) {
        if (tokens[body].Is("...")) macro.variadic = true;
        if (tokens[body].IsName()) macro.parameters.push_back(tokens[body].text);
      }
      if (body >= tokens.size()) source_.Fail(tokens[0].begin, "the macro's parameter list is never closed");
      ++body;
    }
    macro.body.assign(tokens.begin() + static_cast<std::ptrdiff_t>(body), tokens.end());
    macros_[tokens[2].text] = std::move(macro);
  }

  static bool UsualHeader(const std::vector<Token>& tokens) {
    std::string name;
    for (size_t i = 2; i < tokens.size(); ++i) name += tokens[i].text;
    for (const char* usual : {"cuda_", "<cuda", "cooperative_groups", "mma.h", "torch", "ATen", "c10", "<std",
                              "<math", "<cmath", "<cfloat", "<cstdint", "<float.h", "<limits", "<algorithm",
                              "<iostream", "<vector", "<cub/", "\"cub/"}) {
      if (name.find(usual) != std::string::npos) return true;
    }
    return false;
  }

  const SourceText& source_;
  const Symbols& symbols_;
  Macros macros_;
  std::vector<Conditional> conditionals_;
  Preprocessed result_;
  int64_t budget_ = kExpansionBudget;
};

}  // namespace

Preprocessed Preprocess(const SourceText& source, const Symbols& symbols) {
  return Preprocessor(source, symbols).Run();
}

namespace {

constexpr int kMaxExpansionDepth = 64;  // invocations in arguments of invocations
constexpr size_t kMaxChain = 256;       // macros that expand to macros

class Expander {
 public:
  Expander(const SourceText& source, const Macros& macros, int64_t* budget)
      : source_(source), macros_(macros), budget_(budget) {}

  std::vector<Token> Expand(std::vector<Token> tokens, int depth) {
    std::deque<Token> input(std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
    std::vector<Token> output;
    while (!input.empty()) {
      Token token = std::move(input.front());
      input.pop_front();
      if (!token.IsName() || !Replace(token, &input, depth)) output.push_back(std::move(token));
    }
    return output;
  }

 private:
  // Puts the macro's expansion in front of `input`; false where `token` stays as it is (or was changed).
  bool Replace(Token& token, std::deque<Token>* input, int depth) {
    if (token.text == "__LINE__") {
      token.kind = TokenKind::kNumber;
      token.text = std::to_string(source_.Line(token.begin));
      return false;
    }
    if (token.text == "__FILE__") {
      token.kind = TokenKind::kString;
      token.text = "\"candidate.cu\"";
      return false;
    }
    const auto found = macros_.find(token.text);
    if (found == macros_.end() || (token.expanded_from && token.expanded_from->contains(token.text))) {
      return false;
    }
    const Macro& macro = found->second;
    if (token.expanded_from && token.expanded_from->size() >= kMaxChain) {
      return Break(&token, "macros nested too deeply; write the value itself");
    }
    std::vector<std::vector<Token>> arguments;
    size_t end = token.end;
    if (macro.function_like) {
      if (input->empty() || !input->front().Is("(")) return false;
      if (depth >= kMaxExpansionDepth)
        return Break(&token, "macros nested too deeply; write the value itself");
      if (!TakeArguments(token, input, &arguments, &end)) {
        return Break(&token, fmt::format("the arguments of the macro `{}` are never closed", token.text));
      }
      if (!Fits(macro, &arguments)) {
        return Break(&token, fmt::format("the macro `{}` takes {} arguments, not {}", token.text,
                                         macro.parameters.size(), arguments.size()));
      }
    }
    const std::vector<Token> body = Substitute(macro, arguments, token, end, depth);
    input->insert(input->begin(), body.begin(), body.end());
    return true;
  }

  static bool Break(Token* token, const std::string& why) {
    token->kind = TokenKind::kBroken;
    token->text = why;
    return false;
  }

  bool TakeArguments(const Token& name, std::deque<Token>* input, std::vector<std::vector<Token>>* arguments,
                     size_t* end) {
    int depth = 0;
    size_t i = 0;
    arguments->emplace_back();
    for (; i < input->size(); ++i) {
      const Token& token = (*input)[i];
      if (token.Is(")") && --depth == 0) break;
      if (token.Is("(") && depth++ == 0) continue;
      if (token.Is(",") && depth == 1) {
        arguments->emplace_back();
      } else {
        arguments->back().push_back(token);
      }
    }
    if (i == input->size()) {
      *budget_ -= static_cast<int64_t>(i);  // else a text full of open parentheses takes quadratic time
      Spend(name);
      return false;
    }
    *end = std::max(*end, (*input)[i].end);
    input->erase(input->begin(), input->begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return true;
  }

  // Joins what `...` takes into one argument.
  static bool Fits(const Macro& macro, std::vector<std::vector<Token>>* arguments) {
    const size_t count = macro.parameters.size();
    if (count == 0 && !macro.variadic) {
      const bool fits = arguments->size() == 1 && arguments->front().empty();
      if (fits) arguments->clear();
      return fits;
    }
    if (!macro.variadic) return arguments->size() == count;
    if (arguments->size() < count) return false;
    if (arguments->size() == count) arguments->emplace_back();
    Token comma;
    comma.kind = TokenKind::kPunctuator;
    comma.text = ",";
    std::vector<Token>& rest = (*arguments)[count];
    for (size_t i = count + 1; i < arguments->size(); ++i) {
      comma.begin = comma.end = rest.empty() ? 0 : rest.back().end;
      rest.push_back(comma);
      rest.insert(rest.end(), (*arguments)[i].begin(), (*arguments)[i].end());
    }
    arguments->resize(count + 1);
    return true;
  }

  std::vector<Token> Substitute(const Macro& macro, const std::vector<std::vector<Token>>& arguments,
                                const Token& name, size_t end, int depth) {
    auto from = std::make_shared<std::set<std::string>>();
    if (name.expanded_from) *from = *name.expanded_from;
    from->insert(name.text);
    std::vector<Token> result;
    for (const Token& token : macro.body) {
      const std::vector<Token>* argument = Argument(macro, arguments, token);
      if (!argument) {
        result.push_back(token);
        Token& made = result.back();
        made.begin = name.begin;
        made.end = end;
        made.expanded_from = from;
        if (token.Is("##") || (macro.function_like && token.Is("#"))) {
          Break(&made,
                fmt::format(
                    "the macro `{}` uses {}, which launch functions do not support; write its expansion",
                    name.text, token.text));
        }
        Spend(name);
        continue;
      }
      for (Token& made : Expand(*argument, depth + 1)) {
        result.push_back(std::move(made));
        Spend(name);
      }
    }
    if (!result.empty()) result.front().glued = name.glued;
    return result;
  }

  static const std::vector<Token>* Argument(const Macro& macro,
                                            const std::vector<std::vector<Token>>& arguments,
                                            const Token& token) {
    if (!macro.function_like || !token.IsName()) return nullptr;
    const auto parameter = std::find(macro.parameters.begin(), macro.parameters.end(), token.text);
    if (parameter != macro.parameters.end()) {
      return &arguments[static_cast<size_t>(parameter - macro.parameters.begin())];
    }
    return macro.variadic && token.text == "__VA_ARGS__" ? &arguments.back() : nullptr;
  }

  void Spend(const Token& name) {
    if (--*budget_ < 0) {
      source_.Fail(
          name.begin,
          fmt::format("the macro `{}` expands to more tokens than launch may have; write a loop", name.text));
    }
  }

  const SourceText& source_;
  const Macros& macros_;
  int64_t* budget_;
};

}  // namespace

std::vector<Token> ExpandMacros(const SourceText& source, const Macros& macros, std::vector<Token> tokens,
                                int64_t* budget) {
  return Expander(source, macros, budget).Expand(std::move(tokens), 0);
}

}  // namespace kevin::launch
