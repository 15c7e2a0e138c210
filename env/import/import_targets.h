#pragma once
// The files that `kevin import` takes, and the ids, names and places of their problems.

#include <filesystem>
#include <string>
#include <vector>

namespace kevin {

struct ImportTarget {
  std::filesystem::path from;  // the user's file; empty for a function
  std::string id;              // "kb/level1/19"
  std::string name;            // "ReLU"
  std::filesystem::path to;    // the problem file
};

// Throws Error(kBadRequest) unless `suite` can name a folder of imported problems: letters, digits, - and _,
// and not a name that ships with Kevin.
void CheckSuiteName(const std::string& suite);

// `stem` is the file's name without its ending ("19_ReLU"), `folder` the folder in the suite ("level1"; may
// be empty).
ImportTarget MakeImportTarget(const std::string& suite, const std::string& folder, const std::string& stem);

// All files of a tree like KernelBench's: level*/N_Name.py below it or below its folder KernelBench; without
// those, the .py files of the folder itself. In the order of their ids. `level` 0 means all. Throws
// Error(kBadRequest) if there are none.
std::vector<ImportTarget> TargetsOfTree(const std::filesystem::path& tree, const std::string& suite,
                                        int level);

}  // namespace kevin
