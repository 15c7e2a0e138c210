#include "policies/local/text/jinja/token_reader.h"

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
  return Now().kind == kind && (text.empty() || Now().text == text);
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

void TokenReader::Fail(const std::string& reason) const { throw TemplateError(reason, Now().line); }

std::string TokenReader::Describe() const { return KindText(Now().kind, Now().text); }

TokenReader::Deeper::Deeper(TokenReader& reader) : reader_(reader) {
  if (reader.depth_ >= reader.most_depth_) reader.Fail("the template is nested too deep");
  ++reader.depth_;
}

}  // namespace kevin::local::jinja
