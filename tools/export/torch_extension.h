#pragma once
// A kernel as a PyTorch operator: the files of a folder that pip builds, and the same in one Python file.

#include <map>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

struct TorchExtension {
  std::string module;                        // "kevin_level1_19"
  std::map<std::string, std::string> files;  // by path within the folder
};

// `heading`: one text a line, put as comments on top of the kernel's file. The operator takes the problem's inputs at
// the size it was measured at, checks shapes, types and devices, and returns the outputs. Kinds `cuda` and
// `cpp`; throws as WriteLaunchCode does.
TorchExtension WriteTorchExtension(const SizedProblem& problem, const std::string& kind,
                                   const std::string& source, const std::vector<std::string>& heading);

// KernelBench's form: one Python file with a class ModelNew that builds the operator when it is loaded.
// Parameters of the problem become torch.nn parameters of their shapes, without values: KernelBench's models
// make their own.
std::string WriteModelNew(const SizedProblem& problem, const std::string& kind, const std::string& source,
                          const std::vector<std::string>& heading);

// --- Files of the extension that are not C++ (torch_extension_files.cc) ---

std::string SetupPy(const std::string& module, bool gpu);
std::string InitPy(const SizedProblem& problem, const std::string& module);
std::string TestPy(const SizedProblem& problem, const std::string& module, bool gpu);
std::string Readme(const SizedProblem& problem, const std::string& module,
                   const std::vector<std::string>& heading);

}  // namespace kevin
