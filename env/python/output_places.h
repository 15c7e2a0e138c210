#pragma once
// Where a Python worker says that its outputs lie, in memory that the evaluator maps too. Hostile: every number is checked.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

// The bytes from an output's first element to the end of its last one; 0: its strides, in elements, are not possible.
uint64_t ExtentOfOutput(const ConcreteTensor& tensor, const std::vector<int64_t>& strides);

// Empty, or why an output of `extent` bytes cannot lie `offset` bytes from the start of memory of that size.
std::string RefusedPlace(const ConcreteTensor& tensor, uint64_t offset, uint64_t extent,
                         uint64_t memory_bytes);

// Empty, or why outputs of a batch may not lie at these (begin, end): some overlap.
std::string RefusedOverlap(std::vector<std::pair<uint64_t, uint64_t>> taken);

}  // namespace kevin
