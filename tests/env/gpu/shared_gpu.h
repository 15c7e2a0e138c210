#pragma once
// The environment that the tests of one program share on the first GPU.

#include <cstdio>
#include <memory>
#include <optional>

#include "env/environment.h"
#include "env/error.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {

// Null without a GPU, which is said once. The first call decides how long a call of a candidate may take.
inline Environment* SharedGpu(std::optional<double> call_timeout_s = {}) {
  static const TemporaryFolder cache;
  static const std::unique_ptr<Environment> environment = [&]() -> std::unique_ptr<Environment> {
    EnvironmentOptions options = SmallLimits(cache.path());
    options.device = "cuda:0";
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
