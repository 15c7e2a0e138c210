#pragma once
// Inside lower_indexing.cc, lower_scatter.cc, lower_orders.cc, lower_resampling.cc, lower_interpolation.cc and lower_layouts.cc.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "policies/search/lowering.h"

namespace kevin::search {

using IndexingFunction = void (*)(Lowering&, const GraphNode&);

inline size_t PositiveDim(int64_t dim, size_t rank) {
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
}
size_t DimOf(Lowering& at, const GraphNode& node, const char* name, size_t rank, int64_t fallback = 0);
// The integer of an index tensor, broadcast. Throws Unsupported, with `node`, where it is a number outside of a dim of
// `size` that it is to choose from; torch would fail there, a kernel would read beyond the tensor.
ExprPtr IndexAt(const GraphNode& node, const ValuePtr& value, const Index& index, int64_t size);
// The same where negative indices count from the end.
ExprPtr IndexFromEndAt(const GraphNode& node, const ValuePtr& value, const Index& index, int64_t size);

// Where `x[a, :, b]` reads: the dims of the broadcast index tensors stand at `first`, in front where they are apart.
struct IndexedPlaces {
  const GraphNode* node = nullptr;
  std::vector<ValuePtr> indices;  // by dim of x; null: all of the dim
  size_t first = 0, rank = 0;     // of the dims of the index tensors in the result
  Shape shape;                    // of the result
  int cost = 0;

  Index Of(const Index& place, const Shape& from) const;
};
IndexedPlaces PlacesOf(Lowering& at, const GraphNode& node, const Shape& from);

// Each null for an operation of another file.
IndexingFunction ReadNamed(const std::string& op);           // lower_indexing.cc
IndexingFunction ScatterNamed(const std::string& op);        // lower_scatter.cc
IndexingFunction OrderNamed(const std::string& op);          // lower_orders.cc
IndexingFunction ResamplingNamed(const std::string& op);     // lower_resampling.cc
IndexingFunction InterpolationNamed(const std::string& op);  // lower_interpolation.cc
IndexingFunction AntialiasNamed(const std::string& op);      // lower_antialias.cc
IndexingFunction LayoutNamed(const std::string& op);         // lower_layouts.cc

// What is read many times, or where it cannot be known, should cost little.
inline constexpr int kReadCost = 12;

}  // namespace kevin::search
