// Operations on the bits of integers, as arithmetic: a shift is a division by a power of two that rounds down, and the
// ones of a constant are runs, each a remainder.

#include <cstdint>
#include <limits>

#include "policies/search/element_parts.h"

namespace kevin::search {
namespace {

constexpr int kMostShift = 62;  // further ones leave no bit, or the sign

ExprPtr ShiftedBy(const ExprPtr& x, int64_t bits, bool is_left) {
  const int64_t power = int64_t{1} << bits;
  return is_left ? Scaled(x, power) : DivInt(x, power);
}

ExprPtr AndOf(const ExprPtr& x, int64_t mask) {
  if (mask < 0) return AddInt(x, Scaled(AndOf(x, ~mask), -1));
  ExprPtr sum = Int(0);
  for (int low = 0; low <= kMostShift; ++low) {
    if ((mask >> low & 1) == 0) continue;
    int high = low;
    while (high <= kMostShift && (mask >> high & 1) != 0) ++high;
    if (high > kMostShift) return AddInt(sum, AddInt(x, Scaled(ModInt(x, int64_t{1} << low), -1)));
    const ExprPtr run = ModInt(DivInt(x, int64_t{1} << low), int64_t{1} << (high - low));
    sum = AddInt(sum, Scaled(run, int64_t{1} << low));
    low = high;
  }
  return sum;
}

}  // namespace

ExprPtr ShiftedBits(const ExprPtr& x, const ExprPtr& by, bool is_left) {
  if (by->op == "constant") {
    if (by->integer < 0 || by->integer > kMostShift)
      throw Unsupported("a shift by " + std::to_string(by->integer) + " bits has no stage");
    return ShiftedBy(x, by->integer, is_left);
  }
  // One choice for each bit of the number.
  ExprPtr shifted = x;
  for (int64_t bits = 1; bits <= 32 && bits <= by->high; bits *= 2) {
    const ExprPtr is_set = Compare("equal", ModInt(DivInt(by, bits), 2), Int(1));
    shifted = Select(is_set, ShiftedBy(shifted, bits, is_left), shifted);
  }
  return shifted;
}

ExprPtr MaskedBits(const std::string& op, const ExprPtr& x, int64_t mask) {
  if (mask == std::numeric_limits<int64_t>::max() || mask == std::numeric_limits<int64_t>::min())
    throw Unsupported("`" + op + "` of integers has no stage for this number");
  const ExprPtr both = AndOf(x, mask);
  if (op.find("xor") != std::string::npos) return AddInt(AddInt(x, Int(mask)), Scaled(both, -2));
  return op.find("and") != std::string::npos ? both : AddInt(AddInt(x, Int(mask)), Scaled(both, -1));
}

}  // namespace kevin::search
