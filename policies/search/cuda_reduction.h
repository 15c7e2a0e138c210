#pragma once
// Internal to the CUDA writer: how a reduction is spread over threads (cuda_reduction_plan.cc chooses,
// write_cuda_reduction.cc writes).

#include "policies/search/cuda_text.h"

namespace kevin::search {

struct CudaReductionPlan {
  // Rows: a group of neighbouring threads shares an outer point, packs lie along the last inner loop. Columns:
  // neighbouring threads have neighbouring outer points, packs lie along the last outer loop, `group` threads share them.
  bool columns = false;
  int64_t width = 1;   // of packs
  int64_t group = 32;  // threads of an outer point; rows: at most 32, or all of the block
  int64_t threads = 256;
  int64_t each = 4;     // packs under way in a thread
  bool nested = false;  // group 1: the last inner loop is unrolled, the others are loops
  // Rows of short windows: the group lies along the last inner loop, the one before it is unrolled, others are loops.
  bool across = false;
  int64_t cluster = 1;  // blocks of a cluster that shares an outer point; each keeps its part
  int64_t parts = 1;    // blocks that share an outer point; more than 1: a kernel for each step
  enum class Keep { kNo, kRegisters, kShared } keep = Keep::kNo;  // what several passes read
};

// The work with its loops in the order of memory: the inner (or outer) loop along which most elements are neighbours is
// the last. And the plan for it.
struct CudaPlannedReduction {
  Reduction work;  // in packs
  CudaReductionPlan plan;
  int64_t outer = 1, packs = 1;  // points of the loops, in packs
};
CudaPlannedReduction PlanCudaReduction(const CudaText& text, const Reduction& work);

// Whether `group` may be a constant of the text.
bool HasCudaGroupKnob(const CudaReductionPlan& plan);

// Loads that depend on inner loops (and on no result), by pass: a pass per step, then inner_stores.
std::vector<std::vector<CudaLoad>> PassLoads(const Reduction& work, bool columns);
int LastStep(const Reduction& work);

}  // namespace kevin::search
