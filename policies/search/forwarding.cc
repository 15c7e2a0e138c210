#include "policies/search/forwarding.h"

#include <algorithm>

namespace kevin::search {

int64_t CountOf(const std::vector<Loop>& loops) {
  int64_t count = 1;
  for (const Loop& loop : loops) count *= loop.extent;
  return count;
}

ExprPtr LinearOf(const std::vector<Loop>& loops) {
  std::vector<ExprPtr> index;
  std::vector<int64_t> shape;
  for (const Loop& loop : loops) {
    index.push_back(Variable(loop.variable, loop.extent));
    shape.push_back(loop.extent);
  }
  return OffsetOf(index, shape);
}

void AddPositions(const std::vector<Loop>& loops, const ExprPtr& position, Replacement& replacement) {
  std::vector<int64_t> shape;
  for (const Loop& loop : loops) shape.push_back(loop.extent);
  const std::vector<ExprPtr> index = IndexOf(position, shape);
  for (size_t i = 0; i < loops.size(); ++i) replacement[loops[i].variable] = index[i];
}

std::optional<std::vector<Store>> Moved(const std::vector<Store>& stores, const Replacement& replacement,
                                        const std::vector<Store>& made, const ExprPtr& guard) {
  Forwarding forwarding(made, guard);
  std::vector<Store> moved;
  for (const Store& store : stores) {
    Store one = store;
    one.offset = forwarding.Of(Replace(store.offset, replacement));
    one.value = forwarding.Of(Replace(store.value, replacement));
    one.guard = store.guard ? forwarding.Of(Replace(store.guard, replacement)) : nullptr;
    if (guard) one.guard = one.guard ? And(guard, one.guard) : guard;
    moved.push_back(std::move(one));
  }
  if (!forwarding.fits()) return std::nullopt;
  return moved;
}

std::optional<Replacement> Invert(const std::vector<Loop>& loops, const ExprPtr& read, int64_t elements,
                                  const ExprPtr& offset) {
  struct Digit {
    Loop loop;
    int64_t stride;
  };
  std::vector<Digit> digits;
  for (const Loop& loop : loops) {
    const std::optional<int64_t> stride = StrideOf(read, loop.variable);
    if (!stride || *stride <= 0) return std::nullopt;
    digits.push_back({loop, *stride});
  }
  const int64_t constant = read->op == "sum" ? read->integer : read->op == "constant" ? read->integer : 0;
  if (constant != 0 || CountOf(loops) != elements) return std::nullopt;
  std::sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) { return a.stride < b.stride; });
  int64_t expected = 1;
  Replacement replacement;
  for (const Digit& digit : digits) {
    if (digit.stride != expected) return std::nullopt;
    const ExprPtr above = DivInt(offset, expected);
    expected *= digit.loop.extent;
    replacement[digit.loop.variable] = expected == elements ? above : ModInt(above, digit.loop.extent);
  }
  return replacement;
}

}  // namespace kevin::search
