#pragma once
// What the tests of the compile farm share: the toolchain of this machine and a farm with a cache of its own.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "env/environment.h"
#include "env/error.h"
#include "env/gpu/compile/compile_farm.h"
#include "env/sandbox/sandbox.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {

// None: the tests are skipped, which continuous integration (CI is set) does not allow.
inline const std::optional<CudaToolchain>& TestToolchain() {
  static const std::optional<CudaToolchain> kToolchain = []() -> std::optional<CudaToolchain> {
    try {
      return FindCudaToolchain();
    } catch (const Error& error) {
      std::cerr << "no test compiles CUDA here: " << error.what() << "\n  " << error.next_step() << "\n";
      if (std::getenv("CI")) FAIL("CI must have the device compiler");
      return std::nullopt;
    }
  }();
  return kToolchain;
}

class Farm {
 public:
  explicit Farm(const std::function<void(CompileFarmOptions*)>& change = {}) {
    options_.compiler_program = BuiltPrograms() / "kevin-gpu-compiler";
    options_.runner_program = BuiltPrograms() / "kevin-runner";
    options_.cache_directory = folder_.path() / "cache";
    options_.processes = 1;
    options_.namespaces = NamespacesAvailable();
    if (change) change(&options_);
    farm_ = std::make_unique<CompileFarm>(*TestToolchain(), options_);
  }
  GpuCompiled Compile(const std::string& text, const std::vector<std::string>& kernels) {
    GpuCompileRequest request;
    request.device_text = text;
    request.kernels = kernels;
    return farm_->Compile(request);
  }
  CompileFarm* operator->() { return farm_.get(); }
  std::filesystem::path cache() const { return options_.cache_directory / "gpu"; }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  CompileFarmOptions options_;
  std::unique_ptr<CompileFarm> farm_;
};

// The environment that the tests of one program share on the first GPU.

// Null without a GPU, which is said once. The first call decides how long a call of a candidate may take.
inline Environment* SharedGpu(std::optional<double> call_timeout_s = {}) {
  static const TemporaryFolder cache;
  static const std::unique_ptr<Environment> environment = [&]() -> std::unique_ptr<Environment> {
    EnvironmentOptions options = SmallLimits(cache.path());
    options.device = "cuda:0";
    options.limits.compile_timeout_s = 240;    // nvcc with torch's headers
    options.limits.evaluation_timeout_s = 25;  // kernels that never end are among the attacks
    if (call_timeout_s) options.limits.call_timeout_s = *call_timeout_s;
    try {
      return MakeEnvironment(options);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kMachine) throw;
      std::printf("skipped: no usable GPU: %s\n", error.what());
      return nullptr;
    }
  }();
  return environment.get();
}

}  // namespace kevin
