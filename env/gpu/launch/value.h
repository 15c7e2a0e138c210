#pragma once
// What expressions come to. Variables live in Cells that the interpreter owns until it is done, so that
// addresses of variables never dangle.

#include <array>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "env/gpu/launch/launch_list.h"
#include "env/gpu/launch/outline.h"
#include "env/gpu/launch/source_text.h"
#include "env/gpu/launch/syntax.h"
#include "env/gpu/launch/types.h"

namespace kevin::launch {

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
  std::map<std::string, Type> types;   // what the kernel's type parameters are, as far as they are known
};

struct Record {
  std::map<std::string, Cell*> fields;
};

struct LaunchExtra {
  enum Kind { kCluster, kCooperative, kProgrammatic } kind = kCooperative;
  Extents cluster = {1, 1, 1};
};

// Names of template parameters (of the function that runs) and what they stand for.
struct Bindings {
  std::map<std::string, Type> types;
  std::map<std::string, std::string> type_texts;  // as the device compiler must read them
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

// Converts as C++ does where `written` is false, as a cast does where it is true; an integer that does not
// fit a signed type is an error either way.
Value ConvertValue(const SourceText& source, size_t at, const Value& value, const Type& to, bool written);
bool TruthOf(const SourceText& source, size_t at, const Value& value);
// An integer that fits into 64 bits; `what` names it in messages: "the workspace's count".
int64_t WholeNumber(const SourceText& source, size_t at, const Value& value, const std::string& what);

// C++'s promotions and usual conversions; signed overflow is an error.
Value UnaryOperation(const SourceText& source, size_t at, const std::string& op, const Value& value);
Value BinaryOperation(const SourceText& source, size_t at, const std::string& op, const Value& left,
                      const Value& right);
// The type that both operands of an arithmetic operator are brought to.
Type CommonType(const Type& left, const Type& right);

}  // namespace kevin::launch
