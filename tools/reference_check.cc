#include "tools/reference_check.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "env/error.h"
#include "env/process/spawn.h"

namespace kevin {
namespace {

constexpr double kTimeout_s = 120;
constexpr size_t kMaxOutputBytes = 8192;

}  // namespace

std::string CompileReference(const Problem& problem) {
  SpawnOptions spawn;
  try {
    spawn.argv = {RequireProgram(ProgramDirectory(), "kevin-evaluator").string(), "compile",
                  std::filesystem::absolute(problem.path).string()};
  } catch (const Error& error) {
    if (error.code() != ExitCode::kMachine) throw;
    return error.what();
  }
  if (const char* libraries = std::getenv("LD_LIBRARY_PATH"))
    spawn.environment.push_back(std::string("LD_LIBRARY_PATH=") + libraries);
  const Ran ran = RunToEnd(spawn, kTimeout_s, kMaxOutputBytes);
  const bool ended = !ran.timed_out && WIFEXITED(ran.status);
  if (ended && WEXITSTATUS(ran.status) == 0) return "";
  if (!ended || WEXITSTATUS(ran.status) != static_cast<int>(ExitCode::kBadRequest))
    return "kevin-evaluator " + (ran.timed_out ? "does not answer" : DescribeStatus(ran.status));
  const size_t next = ran.output.rfind("\n", ran.output.size() - 2);  // the last line is the next step
  if (next == std::string::npos) throw Error(ExitCode::kBadRequest, ran.output, "");
  throw Error(ExitCode::kBadRequest, ran.output.substr(0, next),
              ran.output.substr(next + 1, ran.output.size() - next - 2));
}

}  // namespace kevin
