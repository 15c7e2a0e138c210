#include "env/process/programs.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "env/error.h"

namespace kevin {
namespace fs = std::filesystem;
namespace {

// Runs `builder name` with its output on stderr. Only system calls between fork and exec: other threads may run.
void BuildProgram(const char* builder, const std::string& name) {
  const char* const argv[] = {builder, name.c_str(), nullptr};
  const pid_t child = fork();
  if (child < 0) throw Error(ExitCode::kBroken, "cannot start " + std::string(builder), "free some memory");
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv(builder, const_cast<char* const*>(argv));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 4;
  throw Error(code == 130 ? ExitCode::kInterrupted
              : code == 3 ? ExitCode::kMachine
                          : ExitCode::kBroken,
              name + " could not be built (see above)", "run " + std::string(builder) + " " + name);
}

}  // namespace

fs::path ProgramDirectory() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return fs::current_path();
  const fs::path here = program.parent_path();
  return fs::exists(here / "kevin-runner", error) ? here : here.parent_path() / "bin";
}

fs::path RequireProgram(const fs::path& folder, const std::string& name) {
  fs::path path = folder / name;
  if (access(path.c_str(), R_OK) == 0) return path;
  const char* builder = std::getenv("KEVIN_BUILD_PROGRAM");
  if (builder != nullptr && *builder != '\0') {
    BuildProgram(builder, name);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  throw Error(ExitCode::kMachine, "program " + path.string() + " is missing",
              "in a checkout, build it: tools/setup.sh " + name +
                  " (programs with torch in them need libtorch, which "
                  "that fetches); else install Kevin again");
}

}  // namespace kevin
