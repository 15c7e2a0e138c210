#pragma once
// Internal to the writers of contractions: small products of one left operand that follow each other, in one launch. A
// launch and the wait for its first slice cost more than such a product itself.

#include <vector>

#include "policies/search/cuda_contraction.h"

namespace kevin::search {

struct CudaProductGroup {
  // In the loop variables of the first; their left operands are equal, their right ones differ in the buffer. Empty: the
  // stage stays alone.
  std::vector<Contraction> members;
  // The second of two reads what the first stores, at the same point (gate and up projections): a tile has columns of
  // both, and `joint` are the stores over results 0 and 1. Else each tile belongs to one member.
  bool is_paired = false;
  std::vector<Store> joint;
};

// The group that begins at this stage of the program.
CudaProductGroup FindCudaGroup(const Program& program, const Task& task, size_t first);
// The same by its contraction, which must be in the program; and whether it is a later member of a group.
CudaProductGroup FindCudaGroup(const Program& program, const Task& task, const Contraction& work);
bool IsLaterInCudaGroup(const Program& program, const Task& task, const Contraction& work);

}  // namespace kevin::search
