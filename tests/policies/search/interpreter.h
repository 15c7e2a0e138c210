#pragma once
// The oracle of the writers' tests: evaluates a program (policies/search/program.h) stage by stage, point by point, in
// double precision. Slow and plain; reads nothing of the writers.

#include <vector>

#include "policies/search/program.h"

namespace kevin::test {

// The contents of each buffer of the program. Whole numbers and truth values are stored as doubles.
using Memory = std::vector<std::vector<double>>;

// Runs all stages. `memory` has a vector for every buffer, of its number of elements; workspaces may hold anything.
// Values that are stored are rounded to whole numbers for buffers of integers, and to 0 or 1 for those of truth values,
// not to float. Throws std::out_of_range for an element that does not exist.
void Interpret(const search::Program& program, Memory& memory);

}  // namespace kevin::test
