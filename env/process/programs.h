#pragma once
// Where Kevin's other programs and plug-ins are, and how one that has not been built yet comes to be.
//
// In a checkout `tools/kevin` builds only what most commands need and sets KEVIN_BUILD_PROGRAM to the command that
// builds one more by its name; in a bundle everything is there.

#include <filesystem>
#include <string>

namespace kevin {

// Beside this program, or in ../bin (tests/ of an unpacked bundle).
std::filesystem::path ProgramDirectory();

// `folder / name`, built first where it is missing and KEVIN_BUILD_PROGRAM is set: that prints what it does to stderr
// and takes from seconds to minutes. Throws Error(kMachine) when the program is not there afterwards. Any thread; two
// processes that need the same program build it once.
std::filesystem::path RequireProgram(const std::filesystem::path& folder, const std::string& name);

}  // namespace kevin
