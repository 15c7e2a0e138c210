#pragma once
// A diagnosis on a CPU: the build for it, its run by the evaluator, its disassembly, and what they say together.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

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

}  // namespace kevin
