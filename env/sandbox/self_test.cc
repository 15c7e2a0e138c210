#include "env/sandbox/self_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>

#include "env/error.h"

namespace kevin {
namespace {

constexpr int kSandboxFailed = 125;  // exit status of EnterSandbox

ActResult Judge(const Attempt& attempt, bool ended, int status) {
  const std::string act = attempt.name;
  if (!ended && attempt.endless) return {act, true, "killed at the deadline"};
  if (!ended) {
    throw Error(ExitCode::kBroken, "sandbox self-test: \"" + act + "\" did not report",
                "try again on an idle machine");
  }
  if (WIFSIGNALED(status)) return {act, true, DescribeStatus(status)};
  if (WEXITSTATUS(status) == kAttemptBlocked) return {act, true, "refused"};
  if (WEXITSTATUS(status) == kAttemptSucceeded) return {act, false, "SUCCEEDED"};
  if (WEXITSTATUS(status) == kSandboxFailed) {
    throw Error(ExitCode::kMachine, "sandbox self-test: the sandbox cannot be entered on this machine",
                "see its message above; `kevin doctor` says what this machine allows");
  }
  throw Error(ExitCode::kBroken,
              "sandbox self-test: the runner " + DescribeStatus(status) + " at \"" + act + "\"",
              "see its message above; `kevin doctor` says what this machine allows");
}

ChildProcess StartAttempt(const SelfTestOptions& options, size_t index) {
  SpawnOptions spawn;
  spawn.namespaces = options.namespaces;
  spawn.argv = {options.runner.string(),
                "attempt",
                options.namespaces ? "namespaces" : "plain",
                std::to_string(index),
                options.canary_folder.string(),
                std::to_string(getpid()),
                ProfileName(options.profile)};
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}};
  return Spawn(spawn);
}

}  // namespace

bool IsForbidden(const Attempt& attempt, SandboxProfile profile) {
  switch (profile) {
    case SandboxProfile::kCandidate:
      return true;
    case SandboxProfile::kPython:
      return !attempt.python_may;
    case SandboxProfile::kGpuPython:
      return attempt.gpu_python || !attempt.candidate_only;
    case SandboxProfile::kGpuPythonBuild:
      return attempt.gpu_python || (!attempt.candidate_only && !attempt.build_may);
    default:
      return !attempt.candidate_only;
  }
}

std::vector<ActResult> RunSelfTest(const SelfTestOptions& options) {
  using Clock = std::chrono::steady_clock;
  std::error_code error;
  std::filesystem::create_directories(options.canary_folder, error);
  if (error)
    throw Error(ExitCode::kBadRequest,
                "cannot make the folder " + options.canary_folder.string() + ": " + error.message(),
                "set XDG_CACHE_HOME to a folder that can be written to");
  std::ofstream(options.canary_folder / "canary") << "secret\n";
  std::map<size_t, ActResult> by_act;
  // Endless acts last, so that they do not slow the others.
  for (const bool endless : {false, true}) {
    std::vector<std::pair<size_t, ChildProcess>> children;
    for (size_t i = 0; i < ForbiddenActs().size(); ++i) {
      const Attempt& attempt = ForbiddenActs()[i];
      if (attempt.endless == endless && IsForbidden(attempt, options.profile))
        children.emplace_back(i, StartAttempt(options, i));
    }
    const auto deadline =
        Clock::now() + std::chrono::duration<double>(endless ? options.spin_deadline_s : options.timeout_s);
    for (auto& [index, child] : children) {
      int status = 0;
      const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
      const bool ended = child.Wait(std::max(left_s, 0.0), &status);
      child.Kill();
      by_act[index] = Judge(ForbiddenActs()[index], ended, status);
    }
  }
  std::filesystem::remove(options.canary_folder / "canary");
  std::vector<ActResult> results;
  for (auto& [index, result] : by_act) results.push_back(std::move(result));
  return results;
}

std::string RequireSandbox(const SelfTestOptions& options, bool accept_holes) {
  std::string succeeded;
  for (const ActResult& result : RunSelfTest(options)) {
    if (!result.blocked) succeeded += (succeeded.empty() ? "" : ", ") + result.act;
  }
  if (succeeded.empty() || accept_holes) return succeeded;
  const bool gpu = options.profile == SandboxProfile::kGpuRunner;
  throw Error(
      ExitCode::kSandbox,
      std::string(
          gpu ? "the GPU runner's sandbox does not hold on this machine: a candidate that breaks out could "
              : "the sandbox does not hold on this machine: a candidate could ") +
          succeeded,
      "run `kevin doctor`, or accept the risk with --isolation reduced (every report then says so)");
}

}  // namespace kevin
