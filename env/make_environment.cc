#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "env/environment.h"
#include "env/error.h"
#include "env/gpu/find_gpus.h"
#include "env/gpu/gpu_environment.h"

namespace kevin {
namespace {

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() < 4 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::unique_ptr<Environment> MakeEnvironment(const EnvironmentOptions& options) {
  if (options.device == "cpu") return MakeCpuEnvironment(options);
  std::string why_none;
  const std::vector<GpuFound> gpus = FindGpus(&why_none);
  if (options.device == "auto") {
    for (const GpuFound& gpu : gpus) {
      try {
        return MakeGpuEnvironment(options, gpu);
      } catch (const Error& error) {
        if (error.code() != ExitCode::kMachine) throw;
        std::fprintf(stderr, "kevin: cuda:%d is not used: %s\n  next: %s\n", gpu.index, error.what(),
                     error.next_step().c_str());
      }
    }
    return MakeCpuEnvironment(options);
  }
  const std::string number =
      options.device == "cuda" ? "0" : options.device.substr(std::min<size_t>(5, options.device.size()));
  if ((options.device.rfind("cuda:", 0) != 0 && options.device != "cuda") || !IsNumber(number)) {
    throw Error(ExitCode::kBadRequest, "no such device: " + options.device,
                "use auto, cpu, cuda:0, cuda:1, ...");
  }
  for (const GpuFound& gpu : gpus) {
    if (gpu.index == std::stoi(number)) return MakeGpuEnvironment(options, gpu);
  }
  throw Error(ExitCode::kMachine,
              gpus.empty() ? options.device + ": " + why_none
                           : fmt::format("{}: this machine has {} GPU{}", options.device, gpus.size(),
                                         gpus.size() > 1 ? "s" : ""),
              "run `kevin doctor`, or use --device cpu");
}

}  // namespace kevin
