#include "env/gpu/ptx/ptx_tokens.h"

namespace kevin {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || c == '.';
}
// `::` inside words (shared::cta) is handled by the reader.
bool IsPtxWordPart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_' || c == '$' || c == '.';
}

class Reader {
 public:
  explicit Reader(std::string_view ptx) : ptx_(ptx) {}

  PtxTokens Read() {
    while (at_ < ptx_.size() && read_.refused.empty()) Next();
    return std::move(read_);
  }

 private:
  char Peek(size_t ahead) const { return at_ + ahead < ptx_.size() ? ptx_[at_ + ahead] : '\0'; }

  void Advance(size_t count) {
    for (; count > 0 && at_ < ptx_.size(); --count, ++at_) {
      if (ptx_[at_] == '\n') ++line_;
    }
  }

  void Refuse(const std::string& what) {
    read_.refused = "line " + std::to_string(line_) + " of the PTX holds " + what;
  }

  void Add(PtxTokenKind kind, size_t length) {
    read_.tokens.push_back({kind, ptx_.substr(at_, length), line_});
    Advance(length);
  }

  void Next() {
    const char c = ptx_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return Advance(1);
    if (c == '/' && Peek(1) == '/') return SkipLine();
    if (c == '/' && Peek(1) == '*') return SkipComment();
    if (c == '"') return ReadString();
    if (IsDigit(c)) return Add(PtxTokenKind::kNumber, LengthOfNumber());
    if (IsWordStart(c)) return ReadWord();
    if (std::string_view("(){}[]<>,;:=+-*/&|^~!?@").find(c) != std::string_view::npos)
      return Add(PtxTokenKind::kPunctuation, 1);
    Refuse(c == '#' ? "a preprocessor line" : "a character that PTX has no use for");
  }

  // A lone carriage return may end a line for the assembler, so it does here.
  void SkipLine() {
    while (at_ < ptx_.size() && ptx_[at_] != '\n' && ptx_[at_] != '\r') {
      if (ptx_[at_] == '\0') return Refuse("a zero byte");
      Advance(1);
    }
  }

  void SkipComment() {
    const size_t end = ptx_.find("*/", at_ + 2);
    if (end == std::string_view::npos) return Refuse("a comment without an end");
    if (ptx_.substr(at_, end - at_).find('\0') != std::string_view::npos) return Refuse("a zero byte");
    Advance(end + 2 - at_);
  }

  void ReadString() {
    const size_t end = ptx_.find('"', at_ + 1);
    if (end == std::string_view::npos) return Refuse("a string without an end");
    const std::string_view inside = ptx_.substr(at_ + 1, end - at_ - 1);
    for (const char c : inside) {
      if (c == '\\' || c == '\n' || c == '\r' || c == '\0')
        return Refuse("a string with a backslash or a line end");
    }
    read_.tokens.push_back({PtxTokenKind::kString, inside, line_});
    Advance(end + 1 - at_);
  }

  size_t LengthOfNumber() const {
    size_t length = 1;
    while (IsPtxWordPart(Peek(length))) ++length;
    return length;
  }

  void ReadWord() {
    size_t length = 1;
    for (;;) {
      if (IsPtxWordPart(Peek(length))) {
        ++length;
      } else if (Peek(length) == ':' && Peek(length + 1) == ':' && IsPtxWordPart(Peek(length + 2))) {
        length += 2;
      } else {
        break;
      }
    }
    Add(PtxTokenKind::kWord, length);
  }

  std::string_view ptx_;
  size_t at_ = 0;
  int line_ = 1;
  PtxTokens read_;
};

}  // namespace

PtxTokens TokenizePtx(std::string_view ptx) { return Reader(ptx).Read(); }

}  // namespace kevin
