#pragma once
// Candidates in Python, on the side of `kevin`: which Python judges them, and what their import compiles. env/python/
// worker.py runs them.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/cpu/compile.h"
#include "env/diagnosis/diagnosis.h"
#include "env/environment.h"
#include "env/python/python_workers.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

// $KEVIN_PYTHON, else python3 on the PATH, if its torch is of the series that Kevin was built with. Imports nothing; takes
// tens of milliseconds. Throws Error(kMachine), with the command that installs it, where there is none.
PythonSetup FindPythonSetup(const std::filesystem::path& program_directory);

// Imports the text in the sandbox of compilers, if it uses torch.utils.cpp_extension, and keeps what that compiles. The
// result's library is a bundle for a worker (env/python/build_candidate.py); cached like a compiled kernel. load_inline uses
// Kevin's own headers where they serve (env/python/own_headers.py), with `torch_headers` never: so is a winner built. Throws
// Error for broken infrastructure only.
// `cuda_architecture`: for which CUDA sources are compiled ("9.0a"); empty: there is no GPU.
Compiled BuildPython(const PythonSetup& setup, const std::string& compiler_version,
                     const Candidate& candidate, bool torch_headers, const CompileOptions& options,
                     const std::string& cuda_architecture = "");

// The extensions that the import of this bundle's text asked for, compiled once more where none of the text's code runs
// (env/python/rebuild_extensions.py): the import may have written any bundle. A bundle of them alone, and in `log` why one was left
// out; no library: it asked for none, or a compiler failed (`log`, `timed_out`), which is not cached. Throws Error for broken
// infrastructure only.
Compiled RebuildExtensions(const PythonSetup& setup, const std::string& compiler_version,
                           const std::filesystem::path& bundle, const CompileOptions& options);

// The times of the stages of these names in a candidate's text, and nothing else. `bundle`: as BuildPython made it. `run` has
// the evaluator run a copy of it, a file under BundleFolder, in which the worker times these stages (env/python/stage_timer.py):
// a DiagnosisRun. Nothing: its run failed, or it is no bundle. Throws Error like an evaluation.
std::optional<Diagnosis> DiagnoseStagesInPython(
    const std::filesystem::path& bundle, const std::vector<std::string>& names,
    const std::filesystem::path& cache_directory,
    const std::function<nlohmann::json(const std::filesystem::path& marked)>& run);

// How long BuildPython may take: with torch's headers a build takes minutes.
double PythonBuildLimit_s(const Limits& limits);

// Of bundles, beside LibraryFolder. Made if needed.
std::filesystem::path BundleFolder(const std::filesystem::path& cache_directory);

// What the rules require of a machine for these kinds: namespaces, and a sandbox that holds. Throws Error(kMachine) or
// Error(kSandbox), unless options.unsafe_python. The result is for EnvironmentFacts::isolation; empty: nothing to add.
// `profile`: kGpuPython on a GPU.
std::string RequirePythonIsolation(const EnvironmentOptions& options, const std::filesystem::path& runner,
                                   bool namespaces, SandboxProfile profile = SandboxProfile::kPython);

}  // namespace kevin
