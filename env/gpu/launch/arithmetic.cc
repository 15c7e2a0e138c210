#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "env/gpu/launch/value.h"

namespace kevin::launch {
namespace {

Type Promoted(const Type& type) {
  const bool small = type.info->kind == TypeKind::kBool || type.info->rank < 3 || type.info->is_enum;
  return type.IsInteger() && small ? TypeNamed("int") : type;
}

bool IsComparison(const std::string& op) {
  return op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
}

template <typename T>
bool Compare(const std::string& op, const T& left, const T& right) {
  if (op == "==") return left == right;
  if (op == "!=") return left != right;
  if (op == "<") return left < right;
  if (op == "<=") return left <= right;
  if (op == ">") return left > right;
  return left >= right;
}

// Wraps an unsigned result; a signed one must fit.
Value Fitted(const SourceText& source, size_t at, const std::string& op, const Type& type, Integer value) {
  const Integer low = LowestOf(*type.info), high = HighestOf(*type.info);
  if (value >= low && value <= high) return {type, value};
  if (type.info->is_signed) {
    const bool is_long = type.info->bytes == 8;
    source.Fail(at,
                fmt::format("`{}` overflows {}{}", op, type.info->name,
                            is_long ? "; compute with smaller numbers"
                                    : fmt::format(" (the result is {}); make one operand long, as in (long)n",
                                                  ToText(value))));
  }
  const Integer modulus = high + 1;
  return {type, (value % modulus + modulus) % modulus};
}

Value Shift(const SourceText& source, size_t at, const std::string& op, const Value& left,
            const Value& right) {
  const Type type = Promoted(left.type);
  const Integer value = IntegerOf(left), count = IntegerOf(right);
  if (count < 0 || count >= type.info->bytes * 8) {
    source.Fail(at, fmt::format("a shift by {} exceeds the width of {}; write 0 to {}", ToText(count),
                                type.info->name, type.info->bytes * 8 - 1));
  }
  const Integer factor = Integer{1} << static_cast<int>(count);
  return Fitted(source, at, op, type, op == "<<" ? value * factor : value >> static_cast<int>(count));
}

Value IntegerOperation(const SourceText& source, size_t at, const std::string& op, const Type& type,
                       Integer l, Integer r) {
  if (op == "+") return Fitted(source, at, op, type, l + r);
  if (op == "-") return Fitted(source, at, op, type, l - r);
  if (op == "&") return Fitted(source, at, op, type, l & r);
  if (op == "|") return Fitted(source, at, op, type, l | r);
  if (op == "^") return Fitted(source, at, op, type, l ^ r);
  if (op == "*") {
    Integer product = 0;
    if (!__builtin_mul_overflow(l, r, &product)) return Fitted(source, at, op, type, product);
    // Only two large unsigned factors get here; their product modulo 2^64 is that of the low halves.
    const auto low = static_cast<uint64_t>(l) * static_cast<uint64_t>(r);
    return {type, static_cast<Integer>(low)};
  }
  if (op != "/" && op != "%") {
    source.Fail(at, fmt::format("`{}` is not possible here; write arithmetic on numbers", op));
  }
  if (r == 0) source.Fail(at, fmt::format("`{}` divides by zero; check the divisor first", op));
  return Fitted(source, at, op, type, op == "/" ? l / r : l % r);
}

Value FloatingOperation(const SourceText& source, size_t at, const std::string& op, const Type& type,
                        double l, double r) {
  double result = 0;
  if (op == "+") {
    result = l + r;
  } else if (op == "-") {
    result = l - r;
  } else if (op == "*") {
    result = l * r;
  } else if (op == "/") {
    // Dividing by zero is defined in IEEE arithmetic and not in C++'s.
    result = r != 0                    ? l / r
             : l == 0 || std::isnan(l) ? NAN
                                       : std::copysign(HUGE_VAL, l) * std::copysign(1.0, r);
  } else {
    source.Fail(at, fmt::format("`{}` needs integers; write a cast to long", op));
  }
  return ConvertValue(source, at, {TypeNamed("double"), result}, type, false);
}

Value PointerOperation(const SourceText& source, size_t at, const std::string& op, const Value& left,
                       const Value& right) {
  const auto* l = std::get_if<DevicePointer>(&left.data);
  const auto* r = std::get_if<DevicePointer>(&right.data);
  const auto null_constant = [](const Value& v) { return v.type.IsInteger() && IntegerOf(v) == 0; };
  if (op == "==" || op == "!=") {
    const DevicePointer a = l ? *l : DevicePointer{}, b = r ? *r : DevicePointer{};
    if ((l || null_constant(left)) && (r || null_constant(right))) return MakeBool((a == b) == (op == "=="));
  }
  if (l && r && left.type == right.type && BytesOf({left.type.info, left.type.pointers - 1}) > 0) {
    if (l->buffer != r->buffer)
      source.Fail(at, "the two pointers lie in different buffers; compute with offsets");
    if (IsComparison(op)) return MakeBool(Compare(op, l->offset, r->offset));
    const int64_t bytes = BytesOf({left.type.info, left.type.pointers - 1});
    if (op == "-") return MakeInteger("long", (Integer{l->offset} - r->offset) / bytes);
  }
  const bool moves = op == "+" || op == "-";
  if (moves && l && right.type.IsInteger()) {
    const int64_t bytes = BytesOf({left.type.info, left.type.pointers - 1});
    if (bytes == 0) source.Fail(at, "a void* has no element size; cast it to float* or char* first");
    if (l->buffer < 0)
      source.Fail(at, "this is arithmetic on a null pointer; start from a tensor or workspace");
    const Integer step = IntegerOf(right) * bytes;
    const Integer offset = op == "+" ? l->offset + step : l->offset - step;
    if (offset > INT64_MAX / 2 || offset < INT64_MIN / 2) {
      source.Fail(at, "this address is outside its buffer; check the offset");
    }
    return {left.type, DevicePointer{l->buffer, static_cast<int64_t>(offset)}};
  }
  if (op == "+" && r && left.type.IsInteger()) return PointerOperation(source, at, op, right, left);
  source.Fail(at, fmt::format("`{}` cannot combine {} and {}; write pointer + elements", op, KindOf(left),
                              KindOf(right)));
}

bool IsScopedEnumMix(const Type& left, const Type& right) { return left == right && left.info->is_enum; }

}  // namespace

Type CommonType(const Type& left, const Type& right) {
  for (const char* floating : {"double", "float"}) {
    const Type type = TypeNamed(floating);
    if (left == type || right == type) return type;
  }
  const Type l = Promoted(left), r = Promoted(right);
  if (l == r) return l;
  if (l.info->is_signed == r.info->is_signed) return l.info->rank >= r.info->rank ? l : r;
  const Type& u = l.info->is_signed ? r : l;
  const Type& s = l.info->is_signed ? l : r;
  if (u.info->rank >= s.info->rank) return u;
  if (s.info->bytes > u.info->bytes) return s;
  return TypeNamed("unsigned " + s.info->name);
}

Value UnaryOperation(const SourceText& source, size_t at, const std::string& op, const Value& value) {
  if (op == "!") return MakeBool(!TruthOf(source, at, value));
  if (!value.type.IsNumber()) {
    source.Fail(at,
                fmt::format("`{}` needs a number, not {}; write arithmetic on numbers", op, KindOf(value)));
  }
  if (value.type.Is(TypeKind::kFloating)) {
    if (op == "~") source.Fail(at, "`~` needs an integer; write a cast to long");
    return {value.type, op == "-" ? -DoubleOf(value) : DoubleOf(value)};
  }
  const Type type = Promoted(value.type);
  const Integer integer = IntegerOf(value);
  return Fitted(source, at, op, type, op == "-" ? -integer : op == "~" ? -integer - 1 : integer);
}

Value BinaryOperation(const SourceText& source, size_t at, const std::string& op, const Value& left,
                      const Value& right) {
  if (!left.type.IsNumber() || !right.type.IsNumber()) return PointerOperation(source, at, op, left, right);
  if (IsScopedEnumMix(left.type, right.type) && IsComparison(op)) {
    return MakeBool(Compare(op, IntegerOf(left), IntegerOf(right)));
  }
  if (op == "<<" || op == ">>") {
    if (!left.type.IsInteger() || !right.type.IsInteger())
      source.Fail(at, "a shift needs integers; write a cast to long");
    return Shift(source, at, op, left, right);
  }
  const Type type = CommonType(left.type, right.type);
  const Value l = ConvertValue(source, at, left, type, true), r = ConvertValue(source, at, right, type, true);
  if (type.Is(TypeKind::kFloating)) {
    if (IsComparison(op)) return MakeBool(Compare(op, DoubleOf(l), DoubleOf(r)));
    return FloatingOperation(source, at, op, type, DoubleOf(l), DoubleOf(r));
  }
  if (IsComparison(op)) return MakeBool(Compare(op, IntegerOf(l), IntegerOf(r)));
  return IntegerOperation(source, at, op, type, IntegerOf(l), IntegerOf(r));
}

}  // namespace kevin::launch
