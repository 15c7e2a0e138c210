#pragma once
// The build of a candidate for a diagnosis: that of the verdict, with its line table and the compiler's report on vectors
// (ReportFlags); where the text marks stages, one with a timer (env/diagnosis/stages.h).

#include <filesystem>
#include <string>
#include <vector>

#include "env/cpu/compile.h"

namespace kevin {

struct DiagnosisBuild {
  std::filesystem::path library;    // in `work`; empty: it was not compiled
  std::string vector_report;        // of the compiler
  std::vector<std::string> stages;  // that the library times
  std::string stage_problem;        // why marks are not timed; empty: they are, or there are none
};

// Compiles into `work`, an empty folder, or copies the library of the verdict there. Throws Error like CompileCpp.
DiagnosisBuild BuildForDiagnosis(const Compiler& compiler, const SizedProblem& problem,
                                 const std::string& source, const CompileOptions& options,
                                 const std::filesystem::path& work);

// The output of objdump (env/diagnosis/hot_loop.h) on the library in `work`, in the sandbox of compilers: the library is
// read, never loaded. Empty: there is no objdump, or it failed.
std::string DisassembledLibrary(const Compiler& compiler, const CompileOptions& options,
                                const std::filesystem::path& work);

}  // namespace kevin
