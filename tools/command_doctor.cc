#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "agent/events.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/cpu/compile.h"
#include "env/error.h"
#include "env/gpu/compile/compile_farm.h"
#include "env/gpu/find_gpus.h"
#include "env/problem/problem.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "env/sandbox/namespace_obstacle.h"
#include "env/sandbox/sandbox.h"
#include "env/sandbox/self_test.h"
#include "policies/search/search_policy.h"
#include "tools/commands.h"
#include "tools/policy_coverage.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDoctorExamples = R"(
Examples:
  kevin doctor           what this machine has, and what to do about what is missing
  kevin doctor --json    the same, one JSON object a line
  kevin doctor --policies
                         also how many listed problems the default policy can write here; refused ones by name

Exit code 0 when a candidate can be judged here, 3 when something needed is missing, 5 when the sandbox leaks.)";

struct Check {
  std::string name;
  bool ok = false;
  bool needed = true;  // without it no candidate can be judged on a CPU
  std::string found, fix;
};

Check CheckCompiler() {
  try {
    const Compiler compiler = FindCompiler();
    return {"compiler", true, true, compiler.path.string() + ": " + compiler.version, ""};
  } catch (const Error& error) {
    return {"compiler", false, true, error.what(), error.next_step()};
  }
}

// The evaluator starts only if the loader finds libtorch.
Check CheckTorch() {
  const fs::path evaluator = ProgramDirectory() / "kevin-evaluator";
  const std::string fix = "run tools/kevin once, or set KEVIN_TORCH to a torch 2.11 package folder";
  if (access(evaluator.c_str(), X_OK) != 0)
    return {"torch", false, true, evaluator.string() + " is missing", fix};
  SpawnOptions spawn;
  spawn.argv = {evaluator.string(), "check"};
  if (const char* libraries = std::getenv("LD_LIBRARY_PATH")) {
    spawn.environment.push_back(std::string("LD_LIBRARY_PATH=") + libraries);
  }
  ChildProcess child = Spawn(spawn);
  int status = 0;
  if (!child.Wait(60, &status)) return {"torch", false, true, "kevin-evaluator does not answer", fix};
  const bool loads = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return {"torch", loads, true, loads ? "libtorch loads" : "kevin-evaluator " + DescribeStatus(status),
          loads ? "" : fix};
}

std::string GpuText(const GpuFound& gpu) {
  constexpr const char* kModes[] = {"", ", exclusive thread mode", ", prohibited mode", ", exclusive mode"};
  const bool known = gpu.compute_mode >= 0 && gpu.compute_mode < static_cast<int>(std::size(kModes));
  return fmt::format("cuda:{} {}, sm_{}{}{}", gpu.index, gpu.name, gpu.capability_major, gpu.capability_minor,
                     known ? kModes[gpu.compute_mode] : "");
}

// Without a GPU, kernels are judged on the CPU. Where there are GPUs, one should be usable.
Check CheckGpu() {
  std::string why_none;
  const std::vector<GpuFound> gpus = FindGpus(&why_none);
  if (gpus.empty()) return {"gpu", true, false, "none, the CPU is used: " + why_none, ""};
  std::vector<std::string> found, fixes;
  for (const GpuFound& gpu : gpus) {
    found.push_back(GpuText(gpu));
    const GpuObstacle obstacle = ObstacleTo(gpu);
    if (!obstacle.reason.empty()) fixes.push_back(obstacle.reason + ": " + obstacle.fix);
  }
  const int driver = gpus.front().driver_version;
  return {"gpu", fixes.empty(), fixes.size() == gpus.size(),
          fmt::format("{}; driver for CUDA {}.{}", fmt::join(found, "; "), driver / 1000, driver % 1000 / 10),
          fmt::format("{}", fmt::join(fixes, "; "))};
}

Check CheckDeviceCompiler() {
  try {
    const CudaToolchain toolchain = FindCudaToolchain();
    const fs::path program = ProgramDirectory() / "kevin-gpu-compiler";
    if (access(program.c_str(), X_OK) != 0)
      return {"cuda compiler", false, false, program.string() + " is missing",
              "build or install Kevin again"};
    return {"cuda compiler", true, false, toolchain.nvrtc.string() + ": " + toolchain.version, ""};
  } catch (const Error& error) {
    return {"cuda compiler", false, false, error.what(),
            "needed only to compile kernels for a GPU: " + error.next_step()};
  }
}

Check CheckNamespaces() {
  if (NamespacesAvailable()) return {"namespaces", true, false, "user, pid, net, ipc, uts, mount", ""};
  const NamespaceObstacle obstacle = ObstacleToNamespaces(TriedNamespaces(), ThisSystem());
  return {"namespaces", false, false, "refused by " + obstacle.layer,
          obstacle.fix + "; without namespaces the other layers of the sandbox still hold"};
}

std::vector<Check> CheckSandbox(bool* leaks) {
  SelfTestOptions options;
  options.runner = ProgramDirectory() / "kevin-runner";
  options.canary_folder = CacheDirectory() / "self-test";
  options.namespaces = NamespacesAvailable();
  if (access(options.runner.c_str(), X_OK) != 0) {
    return {
        {"sandbox", false, true, options.runner.string() + " is missing", "build or install Kevin again"}};
  }
  std::vector<Check> checks;
  for (const ActResult& result : RunSelfTest(options)) {
    *leaks |= !result.blocked;
    checks.push_back(
        {"sandbox: " + result.act, result.blocked, true, result.detail,
         result.blocked ? "" : "do not run untrusted kernels here; --isolation reduced accepts the risk"});
  }
  return checks;
}

// The GPU runner's sandbox, tested without a GPU: one line, and one more for each act that succeeds.
std::vector<Check> CheckGpuSandbox(bool* leaks) {
  SelfTestOptions options;
  options.runner = ProgramDirectory() / "kevin-runner";
  options.canary_folder = CacheDirectory() / "self-test";
  options.namespaces = NamespacesAvailable();
  options.profile = SandboxProfile::kGpuRunner;
  // Each attempt would say so on stderr.
  if (const std::string fix = FixOfCoveredProc(ThisSystem()); options.namespaces && !fix.empty())
    return {{"gpu sandbox", false, false, "the container covers parts of /proc", fix}};
  try {
    std::vector<Check> checks;
    const std::vector<ActResult> results = RunSelfTest(options);
    for (const ActResult& result : results) {
      if (result.blocked) continue;
      *leaks = true;
      checks.push_back({"gpu sandbox: " + result.act, false, true, result.detail,
                        "do not run untrusted kernels on a GPU here; --isolation reduced accepts the risk"});
    }
    checks.push_back(
        {"gpu sandbox", checks.empty(), false,
         fmt::format("{} of {} forbidden acts blocked", results.size() - checks.size(), results.size()), ""});
    return checks;
  } catch (const Error& error) {
    return {{"gpu sandbox", false, false, error.what(), error.next_step()}};
  }
}

Check CheckCache() {
  const fs::path cache = CacheDirectory();
  std::error_code error;
  fs::create_directories(cache, error);
  const bool ok = !error && access(cache.c_str(), W_OK) == 0;
  return {"cache", ok, true, cache.string(), ok ? "" : "make it writable or set XDG_CACHE_HOME"};
}

Check CheckLock() {
  try {
    double wait_s = 0;
    const DeviceLock lock("cpu", LockMode::kShared, &wait_s);
    const bool shared = std::getenv("KEVIN_LOCK_DIRECTORY") != nullptr;
    return {"measurement lock", true, true,
            DeviceLock::PathFor("cpu").string() + (shared ? "" : " (for this user's processes alone)"), ""};
  } catch (const Error& error) {
    return {"measurement lock", false, true, error.what(), error.next_step()};
  }
}

Check CheckProblems() {
  try {
    const size_t count = ProblemSet(ProblemSet::DefaultDirectory()).Ids().size();
    return {"problems", count > 0, true,
            fmt::format("{} in {}", count, ProblemSet::DefaultDirectory().string()), ""};
  } catch (const Error& error) {
    return {"problems", false, true, error.what(), error.next_step()};
  }
}

// What the policies that need no model can write for this machine: one line a suite, and one a refused problem.
std::vector<Check> CheckPolicies() {
  const bool has_gpu = !FindGpus(nullptr).empty();
  const std::string kind = has_gpu ? "cuda" : "cpp", size = has_gpu ? "full" : "small";
  const std::unique_ptr<Policy> policy = MakeSearchPolicy();
  Progress progress(stderr);
  std::vector<Check> checks;
  try {
    const auto suites =
        CoverageOf(*policy, kind, size, [&](const std::string& id) { progress.Phase("policies  " + id); });
    for (const SuiteCoverage& suite : suites) {
      const std::string name = fmt::format("policy {}, ", policy->Name());
      checks.push_back(
          {name + suite.suite, suite.written == suite.asked, false,
           fmt::format("writes {} of {} problems, kind {}, size {}", suite.written, suite.asked, kind, size),
           ""});
      for (const RefusedProblem& one : suite.refused)
        checks.push_back({name + one.id, false, false, one.reason, one.next_step});
    }
  } catch (const Error& error) {
    checks.push_back({"policy " + policy->Name(), false, false, error.what(), error.next_step()});
  }
  progress.Phase("");
  return checks;
}

void PrintChecks(const std::vector<Check>& checks, bool json) {
  for (const Check& check : checks) {
    if (json) {
      const nlohmann::ordered_json event = {{"event", "check"},
                                            {"name", check.name},
                                            {"ok", check.ok},
                                            {"found", check.found},
                                            {"fix", check.fix}};
      Print(stdout, ToLine(event));
      continue;
    }
    PrintFormat(stdout, "{:<4} {:<48} {}\n",
                check.ok       ? "ok"
                : check.needed ? "NO"
                               : "-",
                check.name, check.found);
    if (!check.fix.empty()) PrintFormat(stdout, "     {:<48} -> {}\n", "", check.fix);
  }
}

int RunDoctor(bool json, bool policies) {
  std::vector<Check> checks = {
      {"processor", true, false,
       fmt::format("{}, {} usable cores, {}", CpuModel(), UsableCpus(), CpuFeatures()), ""},
      CheckCompiler(),
      CheckTorch(),
      CheckGpu(),
      CheckDeviceCompiler(),
      CheckCache(),
      CheckLock(),
      CheckProblems(),
      CheckNamespaces()};
  bool leaks = false;
  for (Check& check : CheckSandbox(&leaks)) checks.push_back(std::move(check));
  for (Check& check : CheckGpuSandbox(&leaks)) checks.push_back(std::move(check));
  if (policies) {
    for (Check& check : CheckPolicies()) checks.push_back(std::move(check));
  }
  PrintChecks(checks, json);
  if (leaks) return static_cast<int>(ExitCode::kSandbox);
  for (const Check& check : checks) {
    if (check.needed && !check.ok) return static_cast<int>(ExitCode::kMachine);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Action* action) {
  CLI::App* command =
      app.add_subcommand("doctor", "What this machine has, and what to do about what is missing");
  command->footer(kDoctorExamples);
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON object a line");
  auto policies = std::make_shared<bool>(false);
  command->add_flag("--policies", *policies, "Also count the problems that the default policy can write");
  command->callback(
      [json, policies, action] { *action = [json, policies] { return RunDoctor(*json, *policies); }; });
}

}  // namespace kevin
