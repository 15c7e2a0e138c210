#pragma once
// A kernel as a PyTorch operator in one importable Python file, with its sources beside it:
//
//   NAME.py                  the operator (torch.library: fake implementation, autograd), and for a problem that was
//                            imported from a module also the class itself, with the original as the fallback
//   NAME_kernel/             operator.cpp, operator_data.h, kernelN.cpp or .cu for each shape, original.py,
//                            stored_TENSOR.bin
//
// or as a folder that pip builds: pyproject.toml, setup.py, README.md and a package of the same files. The sources are
// built by torch.utils.cpp_extension at the first import, or ahead by pip; Kevin is not needed. package/ has the parts
// that are the same in every export.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

struct TorchPackage {
  std::string name;    // of the module: "kevin_level1_19", or that of the file
  std::string space;   // namespace of the operators in torch.ops, of the content: two exports never collide
  std::string python;  // the text of the Python file
  std::map<std::string, std::string> kernel_files;  // by name within the kernel's folder
};

struct PackageRequest {
  const Problem* problem = nullptr;  // in the precision of the kernel
  std::string size;                  // a size, or a set with several shapes
  std::string kind, source;          // "cpp" or "cuda"
  std::string name;                  // of the module; empty: from the problem's id
  std::vector<std::string> heading;  // comments on top, one text a line
  bool inference_only = false;       // gradients are an error instead of the original's backward
};

// Throws Error(kBadRequest) for other kinds, a source that no longer reads as a candidate, and a problem whose
// description of its module is none; Error(kMachine) where the parts of package/ are not installed.
TorchPackage WriteTorchPackage(const PackageRequest& request);

// The same, on disk. `output` ends in .py: that file and NAME_kernel beside it; else a folder for pip. Written
// completely or not at all. Throws Error(kBadRequest) where something of that name exists, unless `force`. Returns what
// to say: where it is and how it is used.
std::string WritePackageFiles(const TorchPackage& package, const std::filesystem::path& output, bool gpu,
                              bool force);

// Throws as WritePackageFiles would for an output that exists.
void RequireFreeOutput(const std::filesystem::path& output, bool force);

// The folder of the common parts: ../share/kevin/package beside the program, else the source tree's.
std::filesystem::path PackageParts();

}  // namespace kevin
