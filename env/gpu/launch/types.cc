#include "env/gpu/launch/types.h"

#include <map>
#include <set>
#include <vector>

namespace kevin::launch {
namespace {

using Table = std::map<std::string, TypeInfo>;

void AddElements(Table* table) {
  const auto add = [table](const char* name, int bytes, int align) {
    (*table)[name] = {name, TypeKind::kElement, bytes, align};
  };
  for (const char* half : {"__half", "__nv_bfloat16"}) add(half, 2, 2);
  for (const char* pair : {"__half2", "__nv_bfloat162"}) add(pair, 4, 4);
  for (const char* byte : {"__nv_fp8_e4m3", "__nv_fp8_e5m2"}) add(byte, 1, 1);
  const std::vector<std::pair<std::string, int>> kVectors = {
      {"char", 1}, {"uchar", 1}, {"short", 2},    {"ushort", 2},    {"int", 4},   {"uint", 4},
      {"long", 8}, {"ulong", 8}, {"longlong", 8}, {"ulonglong", 8}, {"float", 4}, {"double", 8}};
  for (const auto& [name, bytes] : kVectors) {
    for (int count = 1; count <= 4; ++count) {
      const int align = count == 3 ? bytes : std::min(bytes * count, 16);
      add((name + std::to_string(count)).c_str(), bytes * count, align);
    }
  }
}

Table MakeTable() {
  Table table;
  const auto add = [&table](const char* name, TypeKind kind, int bytes, int align, bool is_signed = false,
                            int rank = 0) {
    table[name] = {name, kind, bytes, align, is_signed, false, rank};
  };
  add("void", TypeKind::kVoid, 0, 1);
  add("bool", TypeKind::kBool, 1, 1);
  add("char", TypeKind::kInteger, 1, 1, true, 1);
  add("signed char", TypeKind::kInteger, 1, 1, true, 1);
  add("unsigned char", TypeKind::kInteger, 1, 1, false, 1);
  add("short", TypeKind::kInteger, 2, 2, true, 2);
  add("unsigned short", TypeKind::kInteger, 2, 2, false, 2);
  add("int", TypeKind::kInteger, 4, 4, true, 3);
  add("unsigned int", TypeKind::kInteger, 4, 4, false, 3);
  add("long", TypeKind::kInteger, 8, 8, true, 4);
  add("unsigned long", TypeKind::kInteger, 8, 8, false, 4);
  add("long long", TypeKind::kInteger, 8, 8, true, 5);
  add("unsigned long long", TypeKind::kInteger, 8, 8, false, 5);
  add("float", TypeKind::kFloating, 4, 4);
  add("double", TypeKind::kFloating, 8, 8);
  add("dim3", TypeKind::kDim3, 12, 4);
  add("cudaLaunchConfig_t", TypeKind::kRecord, 56, 8);
  add("cudaLaunchAttribute", TypeKind::kRecord, 72, 8);
  add("cudaLaunchAttributeValue", TypeKind::kRecord, 64, 8);
  add("cudaStream_t", TypeKind::kHandle, 8, 8);
  add("CUtensorMap", TypeKind::kTensorMap, 128, 64);
  add("auto", TypeKind::kAuto, 0, 1);
  AddElements(&table);
  return table;
}

const std::map<std::string, std::string>& Synonyms() {
  static const std::map<std::string, std::string> kSynonyms = {
      {"unsigned", "unsigned int"},
      {"uint", "unsigned int"},
      {"uint32_t", "unsigned int"},
      {"int32_t", "int"},
      {"int64_t", "long"},
      {"uint64_t", "unsigned long"},
      {"size_t", "unsigned long"},
      {"ptrdiff_t", "long"},
      {"intptr_t", "long"},
      {"uintptr_t", "unsigned long"},
      {"int8_t", "signed char"},
      {"uint8_t", "unsigned char"},
      {"int16_t", "short"},
      {"uint16_t", "unsigned short"},
      {"uchar", "unsigned char"},
      {"ushort", "unsigned short"},
      {"ulong", "unsigned long"},
      {"half", "__half"},
      {"_Float16", "__half"},
      {"half2", "__half2"},
      {"nv_bfloat16", "__nv_bfloat16"},
      {"nv_bfloat162", "__nv_bfloat162"},
      {"cudaError_t", "int"},
      {"cudaError", "int"},
      {"CUresult", "int"},
      {"cudaLaunchAttributeID", "int"},
      {"cudaMemcpyKind", "int"},
      {"cudaFuncAttribute", "int"},
      {"CUstream", "cudaStream_t"},
      {"cudaLaunchAttribute_st", "cudaLaunchAttribute"},
  };
  return kSynonyms;
}

// "long unsigned int" -> "unsigned long"; empty when the words make no integer type.
std::string CombineWords(const std::string& name) {
  std::map<std::string, int> count;
  size_t at = 0;
  while (at < name.size()) {
    const size_t space = std::min(name.find(' ', at), name.size());
    const std::string word = name.substr(at, space - at);
    if (!IsTypeWord(word)) return "";
    ++count[word];
    at = space + 1;
  }
  if (count["double"]) return "double";
  std::string base = "int";
  if (count["char"]) base = "char";
  if (count["short"]) base = "short";
  if (count["long"] == 1) base = "long";
  if (count["long"] == 2) base = "long long";
  if (count["long"] > 2 || (count["char"] && (count["long"] || count["short"]))) return "";
  if (count["unsigned"]) return "unsigned " + base;
  return base == "char" && count["signed"] ? "signed char" : base;
}

}  // namespace

bool IsTypeWord(const std::string& word) {
  static const std::set<std::string> kWords = {"int",    "long",     "short", "char",
                                               "signed", "unsigned", "double"};
  return kWords.contains(word);
}

const TypeInfo* FindTypeInfo(const std::string& full_name) {
  static const Table kTable = MakeTable();
  std::string name = full_name;
  for (const char* prefix : {"::", "std::", "cuda::std::"}) {
    if (name.starts_with(prefix)) name = name.substr(std::string(prefix).size());
  }
  if (const auto synonym = Synonyms().find(name); synonym != Synonyms().end()) name = synonym->second;
  auto found = kTable.find(name);
  if (found == kTable.end()) found = kTable.find(CombineWords(name));
  return found == kTable.end() ? nullptr : &found->second;
}

Type TypeNamed(const std::string& name) { return {FindTypeInfo(name), 0}; }

std::string TypeText(const Type& type) {
  return type.info->name + std::string(static_cast<size_t>(type.pointers), '*');
}

int64_t BytesOf(const Type& type) { return type.IsPointer() ? 8 : type.info->bytes; }

Integer LowestOf(const TypeInfo& integer) {
  if (integer.kind == TypeKind::kBool || !integer.is_signed) return 0;
  return -(Integer{1} << (integer.bytes * 8 - 1));
}

Integer HighestOf(const TypeInfo& integer) {
  if (integer.kind == TypeKind::kBool) return 1;
  return (Integer{1} << (integer.bytes * 8 - (integer.is_signed ? 1 : 0))) - 1;
}

}  // namespace kevin::launch
