#include "policies/local/text/jinja/parser.h"

#include <initializer_list>

namespace kevin::local::jinja {

namespace {

std::string KindText(TokenKind kind, std::string_view text) {
  switch (kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kName:
      return text.empty() ? "a name" : "'" + std::string(text) + "'";
    default:
      return "'" + std::string(text) + "'";
  }
}

}  // namespace

Token TokenReader::Next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::Is(TokenKind kind, std::string_view text) const {
  return Current().kind == kind && (text.empty() || Current().text == text);
}

bool TokenReader::Skip(TokenKind kind, std::string_view text) {
  if (!Is(kind, text)) return false;
  Next();
  return true;
}

Token TokenReader::Expect(TokenKind kind, std::string_view text) {
  if (!Is(kind, text)) Fail("expected " + KindText(kind, text) + ", not " + Describe());
  return Next();
}

void TokenReader::Fail(const std::string& reason) const { throw TemplateError(reason, Current().line); }

std::string TokenReader::Describe() const { return KindText(Current().kind, Current().text); }

TokenReader::Deeper::Deeper(TokenReader& reader) : reader_(reader) {
  if (reader.depth_ >= reader.most_depth_) reader.Fail("the template is nested too deep");
  ++reader.depth_;
}

namespace {

class Parser {
 public:
  explicit Parser(TokenReader& reader) : reader_(reader), expressions_(reader) {}

  Body ParseAll() {
    Body body = ParseBody({});
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Parses up to {% and one of `ends`, and stops before that name; without `ends`, up to the end of the
  // source.
  Body ParseBody(Names ends) {
    const TokenReader::Deeper deeper(reader_);
    const int opened = reader_.Current().line;
    Body body;
    while (!reader_.Is(TokenKind::kEnd)) {
      if (reader_.Is(TokenKind::kData)) {
        auto data = New<Data>();
        data->text = reader_.Next().text;
        body.statements.push_back(std::move(data));
      } else if (reader_.Skip(TokenKind::kVariableBegin)) {
        auto print = New<Print>();
        print->value = expressions_.ParseTuple();
        reader_.Expect(TokenKind::kVariableEnd);
        body.statements.push_back(std::move(print));
      } else {
        reader_.Expect(TokenKind::kBlockBegin);
        for (const std::string_view end : ends) {
          if (reader_.IsName(end)) return body;
        }
        body.statements.push_back(ParseStatement());
      }
    }
    if (ends.size() > 0) {
      throw TemplateError("{% " + std::string(*(ends.end() - 1)) + " %} is missing", opened);
    }
    return body;
  }

  // The body of a block, with the end of its opening tag and its closing tag.
  Body ParseBlock(std::string_view end) {
    EndTag();
    Body body = ParseBody({end});
    reader_.Next();
    EndTag();
    return body;
  }

  void EndTag() { reader_.Expect(TokenKind::kBlockEnd); }

  StatementPtr ParseStatement() {
    const int line = reader_.Current().line;
    const std::string name = reader_.Expect(TokenKind::kName).text;
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "call") return ParseCallBlock();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "generation") {
      auto group = New<Group>();
      group->body = ParseBlock("endgeneration");
      return group;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) throw TemplateError("'" + name + "' outside of a loop", line);
      auto jump = New<Jump>();
      jump->flow = name == "break" ? Flow::kBreak : Flow::kContinue;
      EndTag();
      return jump;
    }
    throw TemplateError("unknown tag '" + name + "'", line);
  }

  StatementPtr ParseIf() {
    auto node = New<If>();
    while (true) {
      ExpressionPtr test = expressions_.ParseTuple();
      EndTag();
      Body body = ParseBody({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(test), std::move(body));
      if (reader_.SkipName("elif")) continue;
      if (reader_.SkipName("else")) {
        node->otherwise = ParseBlock("endif");
      } else {
        reader_.Next();
        EndTag();
      }
      return node;
    }
  }

  StatementPtr ParseFor() {
    auto node = New<For>();
    node->target = ParseTarget(false);
    reader_.Expect(TokenKind::kName, "in");
    node->items = expressions_.ParseTuple(false);
    if (reader_.SkipName("if")) node->filter = expressions_.Parse();
    if (reader_.IsName("recursive")) reader_.Fail("recursive loops are not supported");
    EndTag();
    ++loops_;
    node->body = ParseBody({"else", "endfor"});
    --loops_;
    if (reader_.SkipName("else")) {
      node->otherwise = ParseBlock("endfor");
    } else {
      reader_.Next();
      EndTag();
    }
    return node;
  }

  // a, b or (a, b) or, for `set`, space.field
  Target ParseTarget(bool with_fields) {
    const TokenReader::Deeper deeper(reader_);
    Target target = ParseOneTarget(with_fields);
    if (!reader_.IsOperator(",")) return target;
    Target all;
    all.line = target.line;
    all.several.push_back(std::move(target));
    while (reader_.SkipOperator(",")) {
      if (reader_.IsOperator("=") || reader_.IsName("in") || reader_.IsOperator(")")) break;
      all.several.push_back(ParseOneTarget(with_fields));
    }
    return all;
  }

  Target ParseOneTarget(bool with_fields) {
    if (reader_.SkipOperator("(")) {
      Target inner = ParseTarget(with_fields);
      reader_.ExpectOperator(")");
      return inner;
    }
    Target target;
    target.line = reader_.Current().line;
    target.name = reader_.Expect(TokenKind::kName).text;
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == constant) reader_.Fail("cannot assign to '" + target.name + "'");
    }
    if (with_fields && reader_.SkipOperator(".")) target.field = reader_.Expect(TokenKind::kName).text;
    return target;
  }

  StatementPtr ParseSet() {
    auto block = New<SetBlock>();
    auto node = New<Set>();
    Target target = ParseTarget(true);
    if (reader_.SkipOperator("=")) {
      node->target = std::move(target);
      node->value = expressions_.ParseTuple();
      EndTag();
      return node;
    }
    block->target = std::move(target);
    if (reader_.SkipOperator("|")) block->filters = ParseFilters();
    block->body = ParseBlock("endset");
    return block;
  }

  Filters ParseFilters() {  // the first "|" is read
    Filters filters;
    do {
      std::string name = reader_.Expect(TokenKind::kName).text;
      int height = 0;
      ArgumentList arguments;
      if (reader_.IsOperator("(")) arguments = expressions_.ParseArguments(height);
      filters.list.emplace_back(std::move(name), std::move(arguments));
    } while (reader_.SkipOperator("|"));
    return filters;
  }

  StatementPtr ParseFilterBlock() {
    auto node = New<FilterBlock>();
    node->filters = ParseFilters();
    node->body = ParseBlock("endfilter");
    return node;
  }

  StatementPtr ParseWith() {
    auto node = New<With>();
    while (!reader_.Is(TokenKind::kBlockEnd)) {
      if (!node->variables.empty()) reader_.ExpectOperator(",");
      Target target = ParseOneTarget(false);
      reader_.ExpectOperator("=");
      node->variables.emplace_back(std::move(target), expressions_.Parse());
    }
    node->body = ParseBlock("endwith");
    return node;
  }

  void ParseParameters(MacroDefinition& macro) {
    reader_.ExpectOperator("(");
    while (!reader_.IsOperator(")")) {
      if (!macro.parameters.empty()) reader_.ExpectOperator(",");
      if (reader_.IsOperator(")")) break;
      std::string name = reader_.Expect(TokenKind::kName).text;
      ExpressionPtr otherwise;
      if (reader_.SkipOperator("=")) {
        otherwise = expressions_.Parse();
      } else if (!macro.parameters.empty() && macro.parameters.back().second != nullptr) {
        reader_.Fail("a parameter without default after one with it");
      }
      macro.parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    reader_.ExpectOperator(")");
  }

  void ParseMacroBody(MacroDefinition& macro, std::string_view end) {
    std::set<std::string> outside;
    outside.swap(expressions_.names_seen);
    const int loops_outside = std::exchange(loops_, 0);
    macro.body = ParseBlock(end);
    loops_ = loops_outside;
    const auto& seen = expressions_.names_seen;
    macro.uses_varargs = seen.contains("varargs");
    macro.uses_kwargs = seen.contains("kwargs");
    macro.uses_caller = seen.contains("caller");
    expressions_.names_seen.insert(outside.begin(), outside.end());
  }

  StatementPtr ParseMacro() {
    auto node = New<MacroDefinition>();
    node->name = reader_.Expect(TokenKind::kName).text;
    ParseParameters(*node);
    ParseMacroBody(*node, "endmacro");
    return node;
  }

  StatementPtr ParseCallBlock() {
    auto node = New<CallBlock>();
    node->caller.line = node->line;
    node->caller.name = "caller";
    if (reader_.IsOperator("(")) ParseParameters(node->caller);
    node->call = expressions_.Parse();
    if (dynamic_cast<const CallExpression*>(node->call.get()) == nullptr) reader_.Fail("'call' wants a call");
    ParseMacroBody(node->caller, "endcall");
    return node;
  }

  template <typename Node>
  std::unique_ptr<Node> New() {
    auto node = std::make_unique<Node>();
    node->line = reader_.Current().line;
    return node;
  }

  TokenReader& reader_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

Body Parse(std::string_view source, const Limits& limits) {
  TokenReader reader(Lex(source, limits), limits.depth);
  return Parser(reader).ParseAll();
}

}  // namespace kevin::local::jinja
