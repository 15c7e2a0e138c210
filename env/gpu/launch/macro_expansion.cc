#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "env/gpu/launch/preprocessor.h"

namespace kevin::launch {
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
      *budget_ -= static_cast<int64_t>(i);  // or a text full of open parentheses takes for ever
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
                fmt::format("the macro `{}` uses {}, which launch functions do without; write out what "
                            "it stands for",
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
          fmt::format("the macro `{}` expands to more than launch may hold; write a loop", name.text));
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
