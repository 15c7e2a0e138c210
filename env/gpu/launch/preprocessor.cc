#include "env/gpu/launch/preprocessor.h"

#include <fmt/format.h>

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
      source_.Fail(tokens[0].begin, fmt::format("#{} without an #if before it; take it out", name));
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

}  // namespace kevin::launch
