#pragma once
// The CUDA that generated kernels start from: packs of 1, 2 or 4 numbers that move in one instruction,
// reductions over a warp, a block or a cluster, asynchronous copies, and the few functions that CUDA lacks.
// Only the parts that a kernel uses are written.

#include <cstdint>
#include <string>
#include <vector>

#include "policies/search/family.h"

namespace kevin::search {

// `element`: of the tensors; 16-bit ones are widened on loading and rounded on storing. Packs of those may
// also be of 8.
std::string WithCudaPrelude(const std::string& body, const std::string& element = "float");
// `struct Extreme` and what belongs to it: argmax, or argmin when not `is_max`.
std::string ExtremePrelude(bool is_max);

// The widest pack that divides `count`: 4, 2 or 1.
int PackWidth(int64_t count);
// "precise" first; only one value when `term` has nothing that a quicker function exists for.
Knob MathKnob(const TermPtr& term);

}  // namespace kevin::search
