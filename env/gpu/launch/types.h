#pragma once
// The types a launch function can speak of: C++'s numbers, CUDA's element types (only their sizes matter) and
// a few of CUDA's host types. Pointers are an element type and a depth.

#include <cstdint>
#include <string>

#include "env/gpu/launch/numbers.h"

namespace kevin::launch {

enum class TypeKind {
  kVoid,
  kBool,
  kInteger,  // enums too
  kFloating,
  kElement,  // what buffers can hold and the host cannot: float4, __half, ...
  kDim3,
  kRecord,  // cudaLaunchConfig_t and the like
  kHandle,  // cudaStream_t
  kTensorMap,
  kAuto  // also what has no type of its own: kernels, lists, strings
};

struct TypeInfo {
  std::string name;
  TypeKind kind = TypeKind::kAuto;
  int bytes = 0, align = 0;
  bool is_signed = false, is_enum = false;
  int rank = 0;  // of integers: C++'s conversion rank
};

struct Type {
  const TypeInfo* info = nullptr;  // never null in a value; TypeInfos live for ever or as long as the list
  int pointers = 0;
  bool operator==(const Type&) const = default;
  bool IsPointer() const { return pointers > 0; }
  bool Is(TypeKind kind) const { return pointers == 0 && info->kind == kind; }
  bool IsInteger() const { return Is(TypeKind::kInteger) || Is(TypeKind::kBool); }
  bool IsNumber() const { return IsInteger() || Is(TypeKind::kFloating); }
};

// By any of its names ("int64_t", "unsigned", "half"), without cv words; null when unknown.
const TypeInfo* FindTypeInfo(const std::string& name);
Type TypeNamed(const std::string& name);  // the name must be known
std::string TypeText(const Type& type);
int64_t BytesOf(const Type& type);

// The words that C++ combines into one integer type.
bool IsTypeWord(const std::string& word);

Integer LowestOf(const TypeInfo& integer);
Integer HighestOf(const TypeInfo& integer);

}  // namespace kevin::launch
