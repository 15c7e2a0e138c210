#pragma once
// What KernelBench calls its problems: its scripts look baselines up by these names.

#include <string>
#include <vector>

namespace kevin {

// The file names of a level, problem 1 first: "1_Square_matrix_multiplication_.py". None for other levels.
std::vector<std::string> KernelBenchFiles(int level);

}  // namespace kevin
