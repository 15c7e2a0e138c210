#include "env/cpu/self_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "env/cpu/attempts.h"
#include "env/error.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

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
                std::to_string(getpid())};
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}};
  return Spawn(spawn);
}

}  // namespace

std::vector<ActResult> RunSelfTest(const SelfTestOptions& options) {
  using Clock = std::chrono::steady_clock;
  std::filesystem::create_directories(options.canary_folder);
  std::ofstream(options.canary_folder / "canary") << "secret\n";
  std::vector<ActResult> results(ForbiddenActs().size());
  // The endless ones last, so that they do not slow the others down.
  for (const bool endless : {false, true}) {
    std::vector<std::pair<size_t, ChildProcess>> children;
    for (size_t i = 0; i < ForbiddenActs().size(); ++i) {
      if (ForbiddenActs()[i].endless == endless) children.emplace_back(i, StartAttempt(options, i));
    }
    const auto deadline =
        Clock::now() + std::chrono::duration<double>(endless ? options.spin_deadline_s : options.timeout_s);
    for (auto& [index, child] : children) {
      int status = 0;
      const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
      const bool ended = child.Wait(std::max(left_s, 0.0), &status);
      child.Kill();
      results[index] = Judge(ForbiddenActs()[index], ended, status);
    }
  }
  std::filesystem::remove(options.canary_folder / "canary");
  return results;
}

}  // namespace kevin
