#include "env/gpu/launch/value.h"

#include <fmt/format.h>

#include <cmath>

namespace kevin::launch {
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
    source.Fail(at,
                fmt::format("{} is {}, which no 64-bit long holds; check for a negative value in unsigned "
                            "arithmetic",
                            what, ToText(IntegerOf(whole))));
  }
  return static_cast<int64_t>(IntegerOf(whole));
}

}  // namespace kevin::launch
