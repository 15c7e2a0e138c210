#pragma once
// Programs of this machine, by name. Any thread that does not change the environment.

#include <filesystem>
#include <string>
#include <vector>

namespace kevin {

// The folders of $PATH in its order, without empty ones; /usr/bin and /bin where it is not set.
std::vector<std::filesystem::path> FoldersOfPath();

// An executable by its name in `folders`, or by its path (a name with a slash). The result is absolute and has no `.` and
// `..`; its last link is kept, because an interpreter in a virtual environment is one. Empty: there is none.
std::filesystem::path FindProgram(const std::string& name,
                                  const std::vector<std::filesystem::path>& folders = FoldersOfPath());

}  // namespace kevin
