#include "env/gpu/ptx/ptx_declaration.h"

#include <charconv>
#include <limits>
#include <map>

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
    Refuse(c == '#' ? "a preprocessor line" : "a character that is not PTX");
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

namespace {

// Only a plain number; -1 for a constant expression and for what is out of bounds.
int64_t NumberOf(std::string_view text) {
  int base = 10;
  if (text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X") {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
  }
  if (!text.empty() && text.back() == 'U') text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

constexpr int64_t kUnknown = -1;

// `[16][4]`: the product; 1 without brackets, 0 for `[]`, kUnknown when not plain numbers.
int64_t ReadDimensions(PtxCursor* cursor) {
  int64_t elements = 1;
  while (cursor->TakeIf("[")) {
    if (cursor->TakeIf("]")) {
      elements = 0;
      continue;
    }
    const int64_t size = NumberOf(cursor->Take().text);
    if (!cursor->TakeIf("]") || size < 0 || elements == kUnknown) return kUnknown;
    if (__builtin_mul_overflow(elements, size, &elements)) return kUnknown;
  }
  return elements;
}

// The cursor behind `=`, ends at the `,` or `;` after the value. Returns how many scalars there are.
int64_t SkipInitialiser(PtxCursor* cursor) {
  int64_t scalars = 1;
  int depth = 0;
  while (!cursor->AtEnd()) {
    const std::string_view text = cursor->Peek().text;
    if (depth == 0 && (text == "," || text == ";")) break;
    if (text == "{" || text == "(") ++depth;
    if (text == "}" || text == ")") --depth;
    if (text == ",") ++scalars;
    cursor->Take();
  }
  return scalars;
}

struct VariableType {
  int64_t bytes = 0;  // of one element
  std::string refused;
};

VariableType ReadVariableType(PtxCursor* cursor) {
  VariableType type;
  int64_t lanes = 1;
  while (cursor->Peek().kind == PtxTokenKind::kWord && cursor->Peek().text[0] == '.') {
    const std::string word(cursor->Take().text);
    if (word == ".align") {
      cursor->Take();
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      lanes = word[2] - '0';
    } else if (word == ".attribute") {
      type.refused = "managed and unified variables are refused; pass the data as an argument";
    } else if (word == ".texref" || word == ".surfref" || word == ".samplerref") {
      type.refused = "textures and surfaces are refused; read the tensor through its pointer";
    } else {
      type.bytes = PtxTypeBytes(word.substr(1));
      if (type.bytes == 0) type.refused = "a variable of the type `" + word + "` is refused";
    }
    if (!type.refused.empty()) return type;
  }
  type.bytes *= lanes;
  return type;
}

}  // namespace

int64_t PtxTypeBytes(std::string_view type) {
  static const std::map<std::string_view, int64_t> kBytes = {
      {"b8", 1},   {"u8", 1},  {"s8", 1},  {"b16", 2}, {"u16", 2},  {"s16", 2},   {"f16", 2},
      {"bf16", 2}, {"b32", 4}, {"u32", 4}, {"s32", 4}, {"f32", 4},  {"f16x2", 4}, {"bf16x2", 4},
      {"b64", 8},  {"u64", 8}, {"s64", 8}, {"f64", 8}, {"b128", 16}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

bool ReadPtxParameters(PtxCursor* cursor, std::vector<KernelParameter>* parameters) {
  if (!cursor->TakeIf("(")) return true;  // an entry without parameters may lack them
  while (!cursor->TakeIf(")")) {
    cursor->TakeIf(",");
    if (!cursor->TakeIf(".param")) return false;
    KernelParameter parameter;
    bool behind_pointer = false;
    while (cursor->Peek().text.substr(0, 1) == ".") {
      const std::string_view word = cursor->Take().text;
      if (word == ".align") {
        const int64_t align = NumberOf(cursor->Take().text);
        if (align <= 0) return false;
        if (!behind_pointer) parameter.align = align;  // else of what it points to
      } else if (word == ".ptr") {
        behind_pointer = true;
      } else if (!behind_pointer) {
        parameter.type = word.substr(1);
      }
    }
    cursor->Take();  // the name
    const int64_t element = PtxTypeBytes(parameter.type), count = ReadDimensions(cursor);
    if (element == 0 || count <= 0 || count > (int64_t{1} << 20)) return false;
    parameter.bytes = element * count;
    if (parameter.align == 0) parameter.align = element;
    parameters->push_back(parameter);
  }
  return true;
}

std::string ReadPtxVariables(PtxCursor* cursor, bool constant, std::vector<GlobalVariable>* variables) {
  const VariableType type = ReadVariableType(cursor);
  if (!type.refused.empty()) return type.refused;
  do {
    GlobalVariable variable{std::string(cursor->Take().text), 0, constant};
    int64_t elements = ReadDimensions(cursor);
    if (cursor->TakeIf("=")) {
      const int64_t scalars = SkipInitialiser(cursor);
      if (elements == 0) elements = scalars;
    }
    if (elements < 0 || __builtin_mul_overflow(elements, type.bytes, &variable.bytes))
      return "the size of the variable `" + variable.name + "` is not a plain number";
    variables->push_back(variable);
  } while (cursor->TakeIf(","));
  return cursor->TakeIf(";") ? "" : "a variable's declaration cannot be read";
}

}  // namespace kevin
