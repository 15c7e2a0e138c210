// The processes that run references, as an environment starts them: what they can see, and what a hostile
// problem file gets from them.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <vector>

#include "env/cpu/cpu_environment.h"
#include "env/error.h"
#include "env/process/spawn.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// "NoNewPrivs" of /proc/PID/status.
std::string StatusOf(const fs::path& process, const std::string& key) {
  std::istringstream in(TextOf(process / "status"));
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key + ":\t", 0) == 0) return line.substr(key.size() + 2);
  }
  return "";
}

std::vector<fs::path> ChildrenOf(const std::string& pid, const std::string& name) {
  std::vector<fs::path> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::istringstream stat(TextOf(entry.path() / "stat"));
    std::string number, program, state, parent;
    if (stat >> number >> program >> state >> parent && parent == pid && program == "(" + name + ")")
      children.push_back(entry.path());
  }
  return children;
}

Candidate Relu() { return {"cpp", TextOf(SourceFolder() / "tests/env/cpu/red_team/correct/plain_loop.cpp")}; }

}  // namespace

TEST_CASE("the evaluator and the reference process are sandboxed") {
  const TemporaryFolder cache;
  const TemporaryFolder home;
  std::ofstream(home.path() / "canary") << "secret";
  const std::unique_ptr<CpuEnvironment> environment = MakeCpuEnvironmentForTools(SmallLimits(cache.path()));
  const Problem problem = ListedProblem("level1/19");
  const Outcome outcome = environment->Verify(problem, Relu(), {});
  Print("plain_loop", outcome);
  REQUIRE(std::holds_alternative<Measured>(outcome));
  // Linux shows the first 15 letters of a name.
  const std::vector<fs::path> evaluators = ChildrenOf(std::to_string(getpid()), "kevin-evaluator");
  REQUIRE(!evaluators.empty());  // another test of this program may have one too
  std::vector<fs::path> processes;
  for (const fs::path& evaluator : evaluators) {
    for (const fs::path& reference : ChildrenOf(evaluator.filename(), "kevin-evaluator")) {
      processes.push_back(reference);
      // It has its evaluator's filter and one of its own.
      CHECK(StatusOf(evaluator, "Seccomp_filters") == "1");
      CHECK(StatusOf(reference, "Seccomp_filters") == "2");
    }
  }
  REQUIRE(!processes.empty());
  processes.insert(processes.end(), evaluators.begin(), evaluators.end());
  for (const fs::path& process : processes) {
    INFO(process);
    CHECK(StatusOf(process, "NoNewPrivs") == "1");
    CHECK(StatusOf(process, "Seccomp") == "2");
    if (!NamespacesAvailable()) continue;
    for (const char* space : {"user", "mnt", "net", "ipc"}) {
      CHECK(fs::read_symlink(process / "ns" / space) != fs::read_symlink(fs::path("/proc/self/ns") / space));
    }
    std::error_code error;
    for (const fs::path& path :
         {fs::path("/etc/passwd"), home.path() / "canary", fs::path("/root"), fs::path("/home")})
      CHECK(!fs::exists(process / "root" / path.relative_path(), error));
    CHECK(fs::exists(process / "root/usr", error));
  }
}

TEST_CASE("a problem file that maps a file of the user is refused, and the file is whole") {
  const TemporaryFolder cache, home;
  const std::string canary = home.path() / "canary";
  std::ofstream(canary) << "99999999999999999999999999999999";
  const std::unique_ptr<CpuEnvironment> environment = MakeCpuEnvironmentForTools(SmallLimits(cache.path()));
  Problem problem = ListedProblem("level1/19");
  const std::string before = "return torch.relu(x)";
  const size_t at = problem.text.find(before);
  REQUIRE(at != std::string::npos);
  problem.text.insert(at + before.size(),
                      " + torch.sum(torch.from_file('" + canary + "', True, 8, dtype=1).fill_(0))");
  try {
    environment->Verify(problem, Relu(), {});
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(std::string(error.what()).find("aten::from_file") != std::string::npos);
  }
  CHECK(TextOf(canary) == "99999999999999999999999999999999");
}

}  // namespace kevin
