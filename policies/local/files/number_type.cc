#include "policies/local/files/model_config.h"

namespace kevin::local {
namespace {

struct Row {
  NumberType type;
  const char* name;
  int bytes;
};

constexpr Row kTypes[] = {
    {NumberType::kBool, "BOOL", 1}, {NumberType::kU8, "U8", 1},          {NumberType::kI8, "I8", 1},
    {NumberType::kI16, "I16", 2},   {NumberType::kI32, "I32", 4},        {NumberType::kI64, "I64", 8},
    {NumberType::kF16, "F16", 2},   {NumberType::kF8E4M3, "F8_E4M3", 1}, {NumberType::kF8E5M2, "F8_E5M2", 1},
    {NumberType::kBF16, "BF16", 2}, {NumberType::kF32, "F32", 4},        {NumberType::kF64, "F64", 8}};

const Row& RowOf(NumberType type) {
  for (const Row& row : kTypes) {
    if (row.type == type) return row;
  }
  return kTypes[0];
}

}  // namespace

int BytesOf(NumberType type) { return RowOf(type).bytes; }

const char* NameOf(NumberType type) { return RowOf(type).name; }

std::optional<NumberType> NumberTypeNamed(const std::string& name) {
  for (const Row& row : kTypes) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

}  // namespace kevin::local
