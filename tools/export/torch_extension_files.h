#pragma once
// The files of a PyTorch extension that are not C++: what builds it, loads it, tries it and explains it.

#include <string>

#include "env/problem/problem.h"

namespace kevin {

std::string SetupPy(const std::string& module, bool gpu);
std::string InitPy(const SizedProblem& problem, const std::string& module);
std::string TestPy(const SizedProblem& problem, const std::string& module, bool gpu);
std::string Readme(const SizedProblem& problem, const std::string& module, const std::string& heading);

}  // namespace kevin
