#include "env/device_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "env/error.h"
#include "env/gpu/find_gpus.h"
#include "env/gpu/gpu_environment.h"
#include "env/printable.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

constexpr int kMoreForASession = 2;

}  // namespace

DevicePool::DevicePool(std::vector<std::unique_ptr<Environment>> devices)
    : devices_(std::move(devices)), facts_(devices_.front()->Facts()), busy_(devices_.size()) {
  std::string names;
  for (const auto& device : devices_) {
    const EnvironmentFacts& other = device->Facts();
    if (DeviceModel(other.device) != DeviceModel(facts_.device) || other.kinds != facts_.kinds) {
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{} and {} are different devices", facts_.device, other.device),
                  "start a process for each (kevin collect --join RUN --device ...)");
    }
    names += (names.empty() ? "" : ", ") + other.device.substr(0, other.device.find(": "));
  }
  facts_.device = names + ": " + DeviceModel(facts_.device);
}

size_t DevicePool::Choose(const Problem& problem, const std::string& size) {
  const auto freest = static_cast<size_t>(std::min_element(busy_.begin(), busy_.end()) - busy_.begin());
  size_t& last = last_.emplace(problem.content_hash + size, freest).first->second;
  if (busy_[last] > busy_[freest] + kMoreForASession) last = freest;
  return last;
}

Evaluation DevicePool::EvaluateShape(const Problem& problem, const Candidate& candidate,
                                     const EvaluateOptions& options) {
  size_t chosen = 0;
  {
    const std::lock_guard lock(mutex_);
    chosen = Choose(problem, options.workload.size);
    ++busy_[chosen];
  }
  const auto leave = [&] {
    const std::lock_guard lock(mutex_);
    --busy_[chosen];
  };
  try {
    Evaluation evaluation = devices_[chosen]->Evaluate(problem, candidate, options);
    leave();
    return evaluation;
  } catch (...) {
    leave();
    throw;
  }
}

std::string DevicePool::EvaluationKey(const Problem& problem, const Candidate& candidate,
                                      const EvaluateOptions& options) {
  return devices_.front()->EvaluationKey(problem, candidate, options);
}

std::string DevicePool::MachineKey(const Problem& problem, const Candidate& candidate,
                                   const EvaluateOptions& options) {
  return devices_.front()->MachineKey(problem, candidate, options);
}

std::optional<Diagnosis> DevicePool::Diagnose(const Problem& problem, const Candidate& candidate,
                                              const EvaluateOptions& options) {
  size_t chosen = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto last = last_.find(problem.content_hash + options.workload.size);
    if (last != last_.end()) chosen = last->second;
  }
  return devices_[chosen]->Diagnose(problem, candidate, options);
}

std::string DevicePool::Graph(const Problem& problem, const std::string& size) {
  return devices_.front()->Graph(problem, size);
}

void DevicePool::Expect(const Problem& problem, const std::string& kind, const Workload& workload) {
  size_t chosen = 0;
  {
    const std::lock_guard lock(mutex_);
    chosen = Choose(problem, workload.size);
  }
  devices_[chosen]->Expect(problem, kind, workload);
}

void DevicePool::ReleaseMemory() {
  for (const auto& device : devices_) device->ReleaseMemory();
}

// --- One device by its name ---

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
        std::fprintf(stderr, "kevin: cuda:%d is not used: %s\n  next: %s\n", gpu.index,
                     Printable(error.what()).c_str(), Printable(error.next_step()).c_str());
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
