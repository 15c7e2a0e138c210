#include "env/gpu/launch/value.h"

#include <fmt/format.h>

#include <cmath>
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

namespace {

Value ToInteger(const SourceText& source, size_t at, const Value& value, const Type& to) {
  const TypeInfo& info = *to.info;
  Integer integer = 0;
  if (value.type.IsInteger()) {
    integer = IntegerOf(value);
  } else {
    const double floating = std::trunc(DoubleOf(value));
    if (!(std::fabs(floating) < 9.3e18)) {
      source.Fail(at,
                  fmt::format("{} does not fit into {}; check the computation", DoubleOf(value), info.name));
    }
    integer = static_cast<Integer>(floating);
  }
  if (info.kind == TypeKind::kBool) return {to, Integer{DoubleOf(value) != 0}};
  if (integer >= LowestOf(info) && integer <= HighestOf(info)) return {to, integer};
  if (info.is_signed) {
    source.Fail(at, fmt::format("{} does not fit into {}; make it long", ToText(integer), info.name));
  }
  const Integer modulus = HighestOf(info) + 1;
  return {to, (integer % modulus + modulus) % modulus};
}

Value ToFloating(const Value& value, const Type& to) {
  const double number = DoubleOf(value);
  if (to.info->bytes == 8) return {to, number};
  if (std::isfinite(number) && std::fabs(number) > 3.4028235677973366e38) {
    return {to, std::copysign(HUGE_VAL, number)};
  }
  return {to, static_cast<double>(static_cast<float>(number))};
}

[[noreturn]] void FailConversion(const SourceText& source, size_t at, const Value& value, const Type& to) {
  source.Fail(at,
              fmt::format("{} cannot become {}; write a value of that type", KindOf(value), TypeText(to)));
}

Value ToPointer(const SourceText& source, size_t at, const Value& value, const Type& to, bool written) {
  if (IsNull(value) || (value.type.IsInteger() && IntegerOf(value) == 0)) return {to, DevicePointer{}};
  if (const auto* pointer = std::get_if<DevicePointer>(&value.data); pointer && value.type.IsPointer()) {
    const bool to_void = to.info->kind == TypeKind::kVoid;
    if (!written && !to_void && !(value.type == to)) {
      source.Fail(at, fmt::format("{} is not {}; write reinterpret_cast<{}>(...)", TypeText(value.type),
                                  TypeText(to), TypeText(to)));
    }
    return {to, *pointer};
  }
  // Host addresses, texts and kernels pass through void*.
  const bool host_address = std::holds_alternative<Cell*>(value.data) ||
                            std::holds_alternative<ArrayPointer>(value.data) ||
                            std::holds_alternative<std::string>(value.data) ||
                            std::holds_alternative<std::shared_ptr<const KernelReference>>(value.data);
  if (host_address) return value;
  FailConversion(source, at, value, to);
}

Value ToDim3(const SourceText& source, size_t at, const Value& value, const Type& to) {
  if (std::holds_alternative<Extents>(value.data)) return value;
  if (value.type.IsNumber()) return {to, Extents{WholeNumber(source, at, value, "the dim3's x"), 1, 1}};
  const auto* list = std::get_if<std::shared_ptr<const ListValue>>(&value.data);
  if (!list || (*list)->values.size() > 3) FailConversion(source, at, value, to);
  Extents extents = {1, 1, 1};
  for (size_t i = 0; i < (*list)->values.size(); ++i) {
    extents[i] = WholeNumber(source, at, (*list)->values[i], "a dim3's member");
  }
  return {to, extents};
}

}  // namespace

Value MakeInteger(const std::string& type, Integer value) { return {TypeNamed(type), value}; }
Value MakeBool(bool value) { return {TypeNamed("bool"), Integer{value}}; }
Value MakeFloating(const std::string& type, double value) { return {TypeNamed(type), value}; }
Value MakeNull() { return {{FindTypeInfo("void"), 1}, DevicePointer{}}; }
Value MakeVoid() { return {TypeNamed("void"), std::monostate()}; }

double DoubleOf(const Value& value) {
  if (const auto* integer = std::get_if<Integer>(&value.data)) return static_cast<double>(*integer);
  return std::get<double>(value.data);
}

bool IsNull(const Value& value) {
  const auto* pointer = std::get_if<DevicePointer>(&value.data);
  return pointer && pointer->buffer < 0;
}

std::string KindOf(const Value& value) {
  struct Visitor {
    const Value& value;
    std::string operator()(std::monostate) const { return "nothing"; }
    std::string operator()(Integer integer) const {
      return value.type.info->kind == TypeKind::kBool ? (integer ? "true" : "false")
                                                      : "the number " + ToText(integer);
    }
    std::string operator()(double number) const { return fmt::format("the number {}", number); }
    std::string operator()(const DevicePointer& pointer) const {
      return pointer.buffer < 0 ? "a null pointer" : "a " + TypeText(value.type);
    }
    std::string operator()(const Extents&) const { return "a dim3"; }
    std::string operator()(const ArrayPointer&) const { return "an array"; }
    std::string operator()(Cell*) const { return "the address of a variable"; }
    std::string operator()(Record*) const { return "a " + value.type.info->name; }
    std::string operator()(const std::shared_ptr<const KernelReference>&) const { return "a kernel"; }
    std::string operator()(const std::shared_ptr<const Closure>&) const { return "a lambda"; }
    std::string operator()(const std::shared_ptr<const ListValue>&) const { return "a list"; }
    std::string operator()(const std::shared_ptr<const TensorMap>&) const { return "a tensor map"; }
    std::string operator()(const LaunchExtra&) const { return "a launch option"; }
    std::string operator()(const std::string&) const { return "a text"; }
  };
  return std::visit(Visitor{value}, value.data);
}

Value ConvertValue(const SourceText& source, size_t at, const Value& value, const Type& to, bool written) {
  if (to.IsPointer()) return ToPointer(source, at, value, to, written);
  switch (to.info->kind) {
    case TypeKind::kAuto:
      return value;
    case TypeKind::kVoid:
      return MakeVoid();
    case TypeKind::kBool:
    case TypeKind::kInteger: {
      if (to.info->kind == TypeKind::kBool && value.type.IsPointer()) return {to, Integer{!IsNull(value)}};
      if (!value.type.IsNumber()) FailConversion(source, at, value, to);
      return ToInteger(source, at, value, to);
    }
    case TypeKind::kFloating:
      if (!value.type.IsNumber()) FailConversion(source, at, value, to);
      return ToFloating(value, to);
    case TypeKind::kElement:
      // Kernels that take a __half get it from a number (EncodeArguments).
      if (!value.type.IsNumber() || to.info->bytes != 2) FailConversion(source, at, value, to);
      return ToFloating(value, TypeNamed("float"));
    case TypeKind::kDim3:
      return ToDim3(source, at, value, to);
    case TypeKind::kHandle:
      return {to, DevicePointer{}};
    case TypeKind::kRecord:
      if (std::holds_alternative<Record*>(value.data) && value.type == to) return value;
      FailConversion(source, at, value, to);
    case TypeKind::kTensorMap:
      if (std::holds_alternative<std::shared_ptr<const TensorMap>>(value.data)) return value;
      FailConversion(source, at, value, to);
  }
  FailConversion(source, at, value, to);
}

bool TruthOf(const SourceText& source, size_t at, const Value& value) {
  if (value.type.IsNumber()) return DoubleOf(value) != 0;
  if (std::holds_alternative<DevicePointer>(value.data)) return !IsNull(value);
  source.Fail(at, fmt::format("{} is neither true nor false; write a comparison", KindOf(value)));
}

int64_t WholeNumber(const SourceText& source, size_t at, const Value& value, const std::string& what) {
  if (!value.type.IsNumber()) {
    source.Fail(at, fmt::format("{} is {}; write an integer", what, KindOf(value)));
  }
  const Value whole = value.type.IsInteger() ? value : ToInteger(source, at, value, TypeNamed("long"));
  if (IntegerOf(whole) > INT64_MAX) {
    source.Fail(
        at,
        fmt::format("{} is {}, which does not fit into a 64-bit long; check for a negative value in unsigned "
                    "arithmetic",
                    what, ToText(IntegerOf(whole))));
  }
  return static_cast<int64_t>(IntegerOf(whole));
}

}  // namespace kevin::launch
