// What stops a GPU environment before it has started anything on the GPU.

#include "env/gpu/gpu_environment.h"

#include "env/error.h"
#include "tests/catch.h"
#include "tests/env/gpu/gpu_fixture.h"

namespace kevin {
namespace {

// Its runner does every act that it is asked to try.
class LeakyMachine {
 public:
  LeakyMachine() {
    for (const char* program : {"kevin-runner", "kevin-gpu-compiler"}) {
      const std::filesystem::path path = folder_.path() / program;
      std::ofstream(path) << "#!/bin/sh\nexit 42\n";
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    options.program_directory = folder_.path();
    options.cache_directory = folder_.path() / "cache";
  }
  EnvironmentOptions options;

 private:
  TemporaryFolder folder_;
};

std::string Complaint(const EnvironmentOptions& options, const GpuFound& gpu, ExitCode code) {
  try {
    MakeGpuEnvironment(options, gpu);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return std::string(error.what()) + "; " + error.next_step();
  }
  return "";
}

}  // namespace

TEST_CASE("a GPU runner's sandbox that leaks stops everything, unless the risk is accepted") {
  if (!TestToolchain() || !NamespacesAvailable()) return;
  LeakyMachine machine;
  const GpuFound gpu{0, "Fake", 9, 0, 0, 13000};
  const std::string leak = Complaint(machine.options, gpu, ExitCode::kSandbox);
  INFO(leak);
  CHECK(
      leak.starts_with("the GPU runner's sandbox does not hold on this machine: a candidate that breaks out "
                       "could read a file of the user's home, "));
  CHECK(leak.find("trace the parent") != std::string::npos);
  CHECK(leak.find("spin past the deadline") == std::string::npos);  // not an act of the GPU runner's
  machine.options.reduced_isolation = true;
  CHECK(Complaint(machine.options, gpu, ExitCode::kMachine).find("kevin-evaluator") != std::string::npos);
}

TEST_CASE("a GPU that cannot be used is said before anything is started") {
  const GpuFound exclusive{1, "Fake", 9, 0, 3, 13000};
  CHECK(Complaint({}, exclusive, ExitCode::kMachine) ==
        "cuda:1 (Fake) is in exclusive compute mode; Kevin needs two processes on it; set it to the default "
        "mode (as root: nvidia-smi -i 1 -c DEFAULT), or use --device cpu");
}

}  // namespace kevin
