// bench_gpu_judge: what a verdict costs on a GPU. Prints the microseconds of each step of a call and of each defence
// (env/verdict/README.md), problem by problem at size full, for a correct kernel of the search policy. The judge runs in
// this process.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "agent/machine.h"
#include "env/error.h"
#include "env/gpu/gpu_build.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/gpu/machine_key.h"
#include "env/problem/problem.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "env/reference/reference.h"
#include "env/verdict/estimate.h"
#include "tests/bench/bench_kernels.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProblems[] = {"level1/19", "level1/23", "level1/1", "level2/12", "level1/95"};
constexpr double kTimeout_s = 20;

class Costs {
 public:
  Costs(const Problem& problem, const EnvironmentOptions& environment, const GpuFound& gpu,
        GpuBuilder& builder)
      : problem_(problem), session_(OptionsOf(problem, environment, gpu, builder)), checker_(session_) {
    const GpuBuild built = builder.Build(session_.sized(), {"cuda", SearchKernel(problem)});
    if (built.failure) throw Error(ExitCode::kBroken, problem.id + ": " + OutcomeReason(*built.failure));
    plan_ = built.plan;
    runner_ = session_.TakeRunner(true);
    Require(runner_.client->Load(plan_, kTimeout_s));
  }

  void Print(int repeats) {
    repeats_ = repeats;
    fmt::print("cost: {}: {} slots, eager {:.1f} us\n", problem_.id, session_.slots(),
               session_.reference_us());
    CostsOfCall();
    CostsOfAnswer();
    CostsOfRunner();
  }

 private:
  static GpuSessionOptions OptionsOf(const Problem& problem, const EnvironmentOptions& environment,
                                     const GpuFound& gpu, GpuBuilder& builder) {
    GpuSessionOptions options;
    options.problem = problem;
    options.device = gpu.index;
    options.namespaces = NamespacesAvailable();
    options.runner_path = RequireProgram(environment.program_directory, "kevin-gpu-runner").string();
    std::ifstream cubin(builder.TrustedCubin(), std::ios::binary);
    options.trusted_cubin.assign(std::istreambuf_iterator<char>(cubin), {});
    return options;
  }

  void Require(const std::optional<RunnerFault>& fault) const {
    if (fault) throw Error(ExitCode::kBroken, problem_.id + ": " + fault->message);
  }

  void Step(const char* name, const std::function<void()>& step) const {
    std::vector<double> times_us;
    for (int i = 0; i < repeats_; ++i) {
      const auto start = Clock::now();
      step();
      times_us.push_back(SecondsSince(start) * 1e6);
    }
    fmt::print("cost: {:<68} {:10.1f} us\n", name, Median(times_us));
  }

  // Before and around each call, timed or not.
  void CostsOfCall() {
    Step("draw inputs and weights", [&] {
      session_.Draw(slot_);
      session_.Synchronize();
    });
    Step("poison outputs and guard bands", [&] {
      session_.PoisonOutputs(slot_);
      session_.Synchronize();
    });
    std::vector<double> event_us;
    Step("a call of the candidate, with all that surrounds it", [&] {
      CallTimes times;
      Require(runner_.client->Time(slot_, true, session_.random()(), kTimeout_s, &times));
      event_us.push_back(times.event_us);
    });
    fmt::print("cost: {:<68} {:10.1f} us\n", "  of which the candidate, by the events", Median(event_us));
    Step("an empty call: workspaces and shared memory poisoned, L2 flushed, gate", [&] {
      CallTimes times;
      Require(runner_.client->Time(slot_, false, session_.random()(), kTimeout_s, &times));
    });
    Step("eager, with L2 flushed", [&] { session_.TimeReferenceUs(slot_); });
    Step("guard bands of the slot", [&] { session_.BrokenGuard(slot_); });
    Step("guard bands of all slots", [&] { session_.AnyBrokenGuard(); });
    Step("clock of the multiprocessors", [&] { session_.ClockMhz(); });
  }

  void CostsOfAnswer() {
    CallTimes times;
    session_.Draw(slot_);
    session_.PoisonOutputs(slot_);
    session_.Synchronize();
    Require(runner_.client->Time(slot_, true, session_.random()(), kTimeout_s, &times));
    session_.TimeReferenceUs(slot_);
    RequireCorrect(checker_.AgainstTruth(slot_));
    session_.TimeReferenceUs(slot_);
    Step("a timed answer against eager's", [&] { RequireCorrect(checker_.AgainstReference(slot_)); });
    Step("a timed answer by the whole rule (once in a measurement)",
         [&] { RequireCorrect(checker_.VerifyTimed(slot_)); });
    Step("a verified answer by the fp64 truth (where eager does not decide)", [&] {
      RequireCorrect(checker_.AgainstTruth(slot_));
      session_.TimeReferenceUs(slot_);
    });
  }

  void CostsOfRunner() {
    Step("key of the machine code", [&] { MachinePlanHash(plan_); });
    Step("load the candidate", [&] {
      Require(runner_.client->Unload());
      Require(runner_.client->Load(plan_, kTimeout_s));
    });
    Step("hand a runner on: unload, poison, canary", [&] {
      session_.GiveBack(std::move(runner_));
      runner_ = session_.TakeRunner(false);
      Require(runner_.client->Load(plan_, kTimeout_s));
    });
    repeats_ = 3;
    Step("a fresh runner: process, sandbox, context, calibration", [&] {
      runner_ = session_.TakeRunner(true);
      Require(runner_.client->Load(plan_, kTimeout_s));
    });
  }

  void RequireCorrect(const CheckResult& check) const {
    if (!check.ok) throw Error(ExitCode::kBroken, problem_.id + ": " + check.message);
  }

  const Problem& problem_;
  GpuSession session_;
  GpuChecker checker_;
  LaunchPlan plan_;
  GpuSession::Calibrated runner_;
  int repeats_ = 0;
  const int slot_ = 0;
};

void Run(int repeats) {
  std::string why_none;
  const std::vector<GpuFound> gpus = FindGpus(&why_none);
  if (gpus.empty()) throw Error(ExitCode::kMachine, why_none, "run `kevin doctor`");
  const GpuFound& gpu = gpus.front();
  const EnvironmentOptions environment = EnvironmentOptionsFor(0, "full");
  GpuBuilder builder(environment, gpu);
  LoadDriver();
  LoadTorchCuda(gpu.index);
  UsePrimaryContext(gpu.index);
  fmt::print("cost: {}, {}\n", gpu.name, builder.compiler());
  const DeviceLock lock(DeviceLock::NameOfGpu(gpu.pci_bus), LockMode::kExclusive, nullptr);
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  for (const char* id : kProblems) {
    const Problem problem = problems.Find(id);
    Costs(problem, environment, gpu, builder).Print(repeats);
    ReleaseTorchCache();
  }
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"What a verdict costs on this GPU"};
  int repeats = 20;
  app.add_option("--repeats", repeats, "Measurements of each step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    kevin::NamingDriverFailures([&] { kevin::Run(repeats); });
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_gpu_judge: {}\n  next: {}\n", error.what(), error.next_step());
    return static_cast<int>(error.code());
  }
  return 0;
}
