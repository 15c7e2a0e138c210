// When operands are copied first, so that slices move in runs of 16 bytes: weights of convolutions with an odd number of
// terms, matrices with odd rows.

#include <algorithm>

#include "policies/search/cuda_contraction.h"

namespace kevin::search {

bool PaysCudaPack(const Program& program, const CudaOperand& operand, const ExprPtr& value,
                  const Contraction& work, bool is_left) {
  const int64_t lines = Points(is_left ? work.m : work.n), uses = Points(is_left ? work.n : work.m);
  const int64_t elements = Points(work.batch) * lines * Points(work.k);
  const int bytes = CudaProductType(program, work) == "float32" ? 4 : 2;
  if (operand.is_split && operand.copy * bytes >= 16) return false;
  if (lines * Points(work.k) > (int64_t{1} << 31) - 1024) return false;
  // Each element is read once a tile of the other side; the copy costs about two such readings, and a launch.
  if (uses < 512 || elements * uses < (int64_t{1} << 24)) return false;
  // Windows: the copy would be many times the tensor.
  int64_t loaded = 0;
  for (const Expr* node : Nodes(value)) {
    if (node->op == "load")
      loaded = std::max(loaded, program.buffers[static_cast<size_t>(node->id)].elements);
  }
  return elements <= loaded + loaded / 4;
}

}  // namespace kevin::search
