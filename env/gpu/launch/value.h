#pragma once
// Types and values of the launch function. Variables live in Cells that the interpreter owns until it is
// done, so that addresses of variables never dangle.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "env/gpu/launch/launch_list.h"
#include "env/gpu/launch/lexer.h"
#include "env/gpu/launch/outline.h"
#include "env/gpu/launch/parser.h"

namespace kevin::launch {

// The types of a launch function: the numbers of C++, the element types of CUDA (only their sizes matter) and
// a few host types of CUDA. A pointer is an element type and a depth.
enum class TypeKind {
  kVoid,
  kBool,
  kInteger,  // enums too
  kFloating,
  kElement,  // types of buffers, not of host variables: float4, __half, ...
  kDim3,
  kRecord,  // cudaLaunchConfig_t and the like
  kHandle,  // cudaStream_t
  kTensorMap,
  kAuto  // also for values without a type: kernels, lists, strings
};

struct TypeInfo {
  std::string name;
  TypeKind kind = TypeKind::kAuto;
  int bytes = 0, align = 0;
  bool is_signed = false, is_enum = false;
  int rank = 0;  // of integers: C++'s conversion rank
};

struct Type {
  const TypeInfo* info = nullptr;  // never null in a value; static, or owned by the interpreter
  int pointers = 0;
  bool operator==(const Type&) const = default;
  bool IsPointer() const { return pointers > 0; }
  bool Is(TypeKind kind) const { return pointers == 0 && info->kind == kind; }
  bool IsInteger() const { return Is(TypeKind::kInteger) || Is(TypeKind::kBool); }
  bool IsNumber() const { return IsInteger() || Is(TypeKind::kFloating); }
};

// By any of its names ("int64_t", "unsigned", "half"), without const and volatile; null when unknown.
const TypeInfo* FindTypeInfo(const std::string& name);
Type TypeNamed(const std::string& name);  // the name must be known
std::string TypeText(const Type& type);
int64_t BytesOf(const Type& type);

// The words that C++ combines into one integer type.
bool IsTypeWord(const std::string& word);

Integer LowestOf(const TypeInfo& integer);
Integer HighestOf(const TypeInfo& integer);

struct Cell;

// An address on the device. Null: buffer -1.
struct DevicePointer {
  int buffer = -1;
  int64_t offset = 0;  // bytes; may leave the buffer until it is used
  bool operator==(const DevicePointer&) const = default;
};

struct Array {
  Type element;
  std::vector<Cell*> cells;
};
struct ArrayPointer {
  Array* array = nullptr;
  int64_t index = 0;
};

using Extents = std::array<int64_t, 3>;  // a dim3 before its limits are checked

// A kernel named as a value: `softmax<float, 256>`.
struct KernelReference {
  std::string name;                    // with namespaces, without template arguments
  const Function* function = nullptr;  // null: from an include or another namespace
  bool has_arguments = false;
  std::vector<std::string> arguments;  // canonical text
  std::map<std::string, Type> types;   // of the kernel's type parameters, as far as known
};

struct Record {
  std::map<std::string, Cell*> fields;
};

struct LaunchExtra {
  enum Kind { kCluster, kCooperative, kProgrammatic } kind = kCooperative;
  Extents cluster = {1, 1, 1};
};

// Template parameters of the running function and their values.
struct Bindings {
  std::map<std::string, Type> types;
  std::map<std::string, std::string> type_texts;  // in the spelling for the device compiler
};

struct Closure {
  std::shared_ptr<const Lambda> lambda;
  std::map<std::string, Cell*> captured;
  Bindings bindings;
  std::string scope;
};

struct Value;
struct ListValue {
  std::vector<Value> values;
  std::vector<std::string> names;  // of designated ones; else empty
};

using Data = std::variant<std::monostate, Integer, double, DevicePointer, Extents, ArrayPointer, Cell*,
                          Record*, std::shared_ptr<const KernelReference>, std::shared_ptr<const Closure>,
                          std::shared_ptr<const ListValue>, std::shared_ptr<const TensorMap>, LaunchExtra,
                          std::string>;

struct Value {
  Type type;
  Data data;
};

struct Cell {
  Value value;
  bool is_const = false;
};

Value MakeInteger(const std::string& type, Integer value);
Value MakeBool(bool value);
Value MakeFloating(const std::string& type, double value);
Value MakeNull();
Value MakeVoid();
template <typename T>
Value MakeOpaque(T data) {
  return {TypeNamed("auto"), Data(std::move(data))};
}

inline Integer IntegerOf(const Value& value) { return std::get<Integer>(value.data); }
double DoubleOf(const Value& value);  // of any number
bool IsNull(const Value& value);      // nullptr, or a null pointer
// "float*", "a kernel", "a list", ... for messages.
std::string KindOf(const Value& value);

// Converts implicitly where `written` is false, as a cast where it is true. An integer that does not fit a
// signed type is an error in both cases.
Value ConvertValue(const SourceText& source, size_t at, const Value& value, const Type& to, bool written);
bool TruthOf(const SourceText& source, size_t at, const Value& value);
// An integer that fits into 64 bits; `what` names it in messages: "the workspace's count".
int64_t WholeNumber(const SourceText& source, size_t at, const Value& value, const std::string& what);

// With the promotions and usual conversions of C++; signed overflow is an error.
Value UnaryOperation(const SourceText& source, size_t at, const std::string& op, const Value& value);
Value BinaryOperation(const SourceText& source, size_t at, const std::string& op, const Value& left,
                      const Value& right);
// The type to which both operands of an arithmetic operator are converted.
Type CommonType(const Type& left, const Type& right);

}  // namespace kevin::launch
