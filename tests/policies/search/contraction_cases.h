#pragma once
// Contractions made by hand: matrix products of every layout, convolutions of 1 to 3 dimensions and transposed ones, at
// odd sizes.

#include <vector>

#include "tests/policies/search/program_cases.h"

namespace kevin::test {

std::vector<ProgramCase> EveryContraction();

}  // namespace kevin::test
