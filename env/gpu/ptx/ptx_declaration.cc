#include "env/gpu/ptx/ptx_declaration.h"

#include <charconv>
#include <limits>
#include <map>

namespace kevin {
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
