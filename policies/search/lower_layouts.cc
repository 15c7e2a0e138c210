// Tensors laid out in a new one: blocks on a diagonal, all pairs, powers, sequences of unequal lengths. Choices among
// reads, without a stage.

#include <algorithm>

#include "policies/search/element_parts.h"
#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

void BlockDiagonal(Lowering& at, const GraphNode& node) {
  std::vector<ValuePtr> blocks = at.Tensors(node, "tensors");
  for (ValuePtr& block : blocks) {
    if (block->shape.size() < 2) block = at.Reshape(block, {1, Count(block->shape)});
  }
  const std::string dtype = at.ResultOf(node).dtype;
  const Type type = TypeOf(dtype);
  at.Set(node,
         at.Lazy(
             dtype, at.ResultOf(node).shape,
             [=](const Index& place) {
               ExprPtr sum = ToType(Float(0), type);
               int64_t row = 0, column = 0;
               for (const ValuePtr& block : blocks) {
                 const ExprPtr i = AddInt(place[0], Int(-row)), j = AddInt(place[1], Int(-column));
                 ExprPtr within =
                     And(Compare("less_equal", Int(0), i), Compare("less", i, Int(block->shape[0])));
                 within = And(
                     within, And(Compare("less_equal", Int(0), j), Compare("less", j, Int(block->shape[1]))));
                 sum = Select(within, Guard(within, ToType(block->at({i, j}), type), ToType(Float(0), type)),
                              sum);
                 row += block->shape[0], column += block->shape[1];
               }
               return sum;
             },
             static_cast<int>(2 * blocks.size())));
}

void CartesianProduct(Lowering& at, const GraphNode& node) {
  const std::vector<ValuePtr> values = at.Tensors(node, "tensors");
  if (values.size() == 1) return at.Set(node, values[0]);
  Shape sizes;
  for (const ValuePtr& value : values) sizes.push_back(value->shape.at(0));
  at.Set(node, at.Lazy(
                   at.ResultOf(node).dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     const Index own = IndexOf(place[0], sizes);
                     ExprPtr chosen = values.back()->at({own.back()});
                     for (size_t i = values.size() - 1; i-- > 0;) {
                       const ExprPtr here = Compare("equal", place[1], Int(static_cast<int64_t>(i)));
                       chosen = Select(here, values[i]->at({own[i]}), chosen);
                     }
                     return chosen;
                   },
                   static_cast<int>(2 * values.size())));
}

void Powers(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "x");
  const int64_t count = at.ResultOf(node).shape.back();
  const bool ascends = node.op == "linalg_vander" || at.Flag(node, "increasing", false);
  at.Set(node, at.Lazy(
                   at.ResultOf(node).dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     const ExprPtr value = ToType(x->at(Index(place.begin(), place.end() - 1)), Type::kFloat);
                     ExprPtr result = Float(1), power = Float(1);
                     for (int64_t i = 1; i < count; ++i) {
                       power = Times(power, value);
                       const ExprPtr here = Compare("equal", place.back(), Int(ascends ? i : count - 1 - i));
                       result = Select(here, power, result);
                     }
                     return result;
                   },
                   static_cast<int>(2 * count)));
}

void PadSequence(Lowering& at, const GraphNode& node) {
  const std::vector<ValuePtr> parts = at.Tensors(node, "sequences");
  const bool batch_first = at.Flag(node, "batch_first", false);
  const std::string dtype = at.ResultOf(node).dtype;
  const Type type = TypeOf(dtype);
  const ExprPtr fill = ToType(Float(at.Number(node, "padding_value", 0)), type);
  if (at.Word(node, "padding_side", "right") != "right")
    throw Unsupported("`pad_sequence` on the left has no stage");
  at.Set(node, at.Lazy(
                   dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     const ExprPtr batch = place[batch_first ? 0 : 1], step = place[batch_first ? 1 : 0];
                     ExprPtr chosen = fill;
                     for (size_t i = parts.size(); i-- > 0;) {
                       Index own(place.begin() + 1, place.end());
                       own[0] = step;
                       const ExprPtr within = And(Compare("equal", batch, Int(static_cast<int64_t>(i))),
                                                  Compare("less", step, Int(parts[i]->shape[0])));
                       chosen = Select(within, Guard(within, ToType(parts[i]->at(own), type), fill), chosen);
                     }
                     return chosen;
                   },
                   static_cast<int>(2 * parts.size())));
}

// Halves of dims change places: place 0 comes to the middle, or back from there.
void Shift(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const std::vector<int> dims = at.Dims(node, "dim", x->shape.size());
  const bool is_back = node.op == "fft_ifftshift";
  at.Set(node, at.Lazy(
                   x->dtype, x->shape,
                   [=](const Index& place) {
                     Index own = place;
                     for (const int dim : dims) {
                       const auto at_dim = static_cast<size_t>(dim);
                       const int64_t size = x->shape[at_dim], half = is_back ? size / 2 : (size + 1) / 2;
                       own[at_dim] = ModInt(AddInt(place[at_dim], Int(half)), size);
                     }
                     return x->at(own);
                   },
                   x->cost));
}

}  // namespace

IndexingFunction LayoutNamed(const std::string& op) {
  static const std::map<std::string, IndexingFunction> kTable = {
      {"block_diag", BlockDiagonal}, {"cartesian_prod", CartesianProduct}, {"vander", Powers},
      {"linalg_vander", Powers},     {"pad_sequence", PadSequence},        {"fft_fftshift", Shift},
      {"fft_ifftshift", Shift}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kevin::search
