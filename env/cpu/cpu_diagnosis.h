#pragma once
// A diagnosis on a CPU: the build for it, its run by the evaluator, its disassembly, and what they say together.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/cpu/compile.h"
#include "env/diagnosis/diagnosis.h"

namespace kevin {

struct CpuDiagnosisParts {
  const Compiler& compiler;
  CompileOptions compile;
  // Has the evaluator run a library (env/cpu/diagnose.h). The file lies under LibraryFolder.
  std::function<nlohmann::json(const std::filesystem::path& library)> run;
};

// Nothing: the text does not compile, or its run failed. Throws Error like an evaluation.
std::optional<Diagnosis> DiagnoseOnCpu(const SizedProblem& sized, const std::string& source,
                                       const CpuDiagnosisParts& parts);

// Of a candidate in Python: the times of these stages of its text alone. `bundle`: as BuildPython made it. parts.run gets a
// file under BundleFolder. Nothing, and errors: as above.
std::optional<Diagnosis> DiagnoseStagesInPython(const std::filesystem::path& bundle,
                                                const std::vector<std::string>& names,
                                                const CpuDiagnosisParts& parts);

}  // namespace kevin
