#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <memory>

#include "agent/events.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/cpu/cpu_environment.h"
#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "tools/baselines.h"
#include "tools/commands.h"
#include "tools/device_options.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

constexpr const char* kBaselineExamples = R"(Examples:
  kevin baseline --problem level1/19               eager and torch.compile on the first GPU, some 30 s; stored
  kevin baseline --problem level1/19 level1/23     several
  kevin baseline --suite level1                    a whole level; what is stored already is not measured again
  kevin baseline --suite level1 --tf32 reference   with TF32 allowed, as in `kevin run --tf32 reference`
  kevin baseline --suite level1 --mode max-autotune-no-cudagraphs
                                                   torch.compile that tries more kernels; stored beside the default
  kevin baseline --suite level1 --device cpu       eager alone, some 4 s each; so too where there is no GPU

On a GPU it needs a Python with torch 2.11 and CUDA: python3 on the PATH, or the one that KEVIN_PYTHON names.
`kevin run` and `kevin bench` look up what is stored; `kevin problems ID` shows it.)";

struct BaselineOptions {
  std::vector<std::string> problems;
  std::string suite, size, device = "auto", mode = "default";
  DeviceOptions asked;  // only `tf32` and `precision` are options here
  bool json = false, again = false;
};

std::vector<Problem> Select(const BaselineOptions& options) {
  const ProblemSet set;
  std::vector<Problem> problems;
  for (const std::string& id : options.problems) problems.push_back(set.Find(id));
  if (!options.suite.empty()) {
    for (const std::string& id : ProblemsOfSuite(set, ProblemSet::DefaultDirectory(), options.suite))
      problems.push_back(set.Find(id));
  }
  if (problems.empty()) {
    throw Error(ExitCode::kBadRequest, "baseline: no problem given",
                "kevin baseline --problem level1/19, or --suite level1; kevin problems lists them");
  }
  for (Problem& problem : problems) {  // errors come before anything starts
    problem = AsAsked(std::move(problem), options.asked);
    if (!options.size.empty()) ShapesOf(problem, options.size);
  }
  return problems;
}

// None: the CPU.
std::optional<GpuFound> PickGpu(const std::string& device) {
  if (device == "cpu") return std::nullopt;
  std::string why_none;
  const std::vector<GpuFound> gpus = FindGpus(&why_none);
  for (const GpuFound& gpu : gpus) {
    if (device == "auto" || device == fmt::format("cuda:{}", gpu.index)) return gpu;
  }
  if (device == "auto") return std::nullopt;
  throw Error(ExitCode::kMachine,
              gpus.empty() ? device + ": " + why_none
                           : fmt::format("{}: this machine has {} GPU{}", device, gpus.size(),
                                         gpus.size() > 1 ? "s" : ""),
              "run `kevin doctor`, or take --device cpu");
}

// Measures on one device.
class Meter {
 public:
  virtual ~Meter() = default;
  virtual std::string What() const = 0;  // "torch.compile 2.11.0 of /usr/bin/python3, on cuda:0: NVIDIA H200"
  virtual BaselineKey KeyFor(const Problem& problem, const std::string& size) const = 0;
  virtual std::string torch_version() const = 0;  // empty: any
  // Stores it too.
  virtual Baseline Measure(const Problem& problem, const std::string& size, const std::string& label,
                           const BaselineWork& work) = 0;
};

class GpuMeter final : public Meter {
 public:
  GpuMeter(const BaselineOptions& options, GpuFound gpu)
      : tf32_(options.asked.tf32 == "reference"),
        mode_(options.mode),
        gpu_(std::move(gpu)),
        python_(FindPythonTorch()) {}

  std::string What() const override {
    return fmt::format("torch.compile {}{} of {}, on cuda:{}: {}", python_.torch_version,
                       mode_ == "default" ? "" : " (" + mode_ + ")", python_.python.string(), gpu_.index,
                       gpu_.name);
  }
  BaselineKey KeyFor(const Problem& problem, const std::string& size) const override {
    return KeyOfBaseline(problem, size, tf32_, gpu_, mode_);
  }
  std::string torch_version() const override { return python_.torch_version; }
  Baseline Measure(const Problem& problem, const std::string& size, const std::string& label,
                   const BaselineWork& work) override {
    return MeasureBaseline({&problem, size, tf32_, mode_}, gpu_, python_, label, work);
  }

 private:
  const bool tf32_;
  const std::string mode_;
  const GpuFound gpu_;
  const PythonTorch python_;
};

class CpuMeter final : public Meter {
 public:
  explicit CpuMeter(const BaselineOptions& options)
      : environment_(MakeCpuEnvironmentForTools(EnvironmentOptionsFor(0, "full"))) {
    if (options.asked.tf32 == "reference")
      throw Error(ExitCode::kBadRequest, "--tf32 reference: a CPU has no TF32", "leave it out");
    if (options.mode != "default")
      throw Error(ExitCode::kBadRequest, "--mode " + options.mode + ": on a CPU eager alone is measured",
                  "leave it out, or name a GPU with --device");
  }

  std::string What() const override { return "eager, on " + environment_->Facts().device; }
  BaselineKey KeyFor(const Problem& problem, const std::string& size) const override {
    return {problem.content_hash,         size, false,
            environment_->Facts().device, "",   PrecisionName(PrecisionOf(problem))};
  }
  std::string torch_version() const override { return ""; }
  Baseline Measure(const Problem& problem, const std::string& size, const std::string& label,
                   const BaselineWork& work) override {
    work.progress->Phase(label + "  eager");
    EvaluateOptions options;
    options.workload.size = size;
    const EagerBaseline eager = environment_->MeasureEager(problem, options);
    work.progress->Phase("");
    if (work.stop->load()) throw Error(ExitCode::kInterrupted, "interrupted", "what was measured is stored");
    Baseline baseline;
    baseline.key = KeyFor(problem, size);
    baseline.problem = problem.id;
    baseline.torch_version = eager.torch_version;
    baseline.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    baseline.eager_us = eager.eager_us;
    baseline.pairs = eager.batches;
    BaselineStore(CacheDirectory()).Store(baseline);
    return baseline;
  }

 private:
  const std::unique_ptr<CpuEnvironment> environment_;
};

std::unique_ptr<Meter> MakeMeter(BaselineOptions* options) {
  const std::optional<GpuFound> gpu = PickGpu(options->device);
  if (options->size.empty()) options->size = gpu ? "full" : "small";
  if (gpu) return std::make_unique<GpuMeter>(*options, *gpu);
  return std::make_unique<CpuMeter>(*options);
}

class Baselines {
 public:
  explicit Baselines(const BaselineOptions& options)
      : options_(options),
        problems_(Select(options)),
        meter_(MakeMeter(&options_)),
        store_(CacheDirectory()),
        progress_(stderr) {}

  int Run() {
    progress_.Line(fmt::format("{}, size {}", meter_->What(), options_.size));
    std::vector<std::vector<std::string>> table = {kBaselineHeading};
    for (size_t i = 0; i < problems_.size(); ++i) {
      for (const auto& [size, weight] : ShapesOf(problems_[i], options_.size)) {
        std::string label = fmt::format("{}/{} {}", i + 1, problems_.size(), problems_[i].id);
        if (size != options_.size) label += " " + size;
        const Baseline baseline = Get(problems_[i], size, label);
        table.push_back(BaselineRow(baseline));
        if (options_.json) {
          Print(stdout, ToLine(BaselineEvent(baseline)));
          std::fflush(stdout);
        }
      }
    }
    if (!options_.json) Print(stdout, AlignedTable(table));
    return static_cast<int>(broken_ ? ExitCode::kBroken : ExitCode::kDone);
  }

 private:
  using Json = nlohmann::ordered_json;

  Baseline Get(const Problem& problem, const std::string& size, const std::string& label) {
    const BaselineKey key = meter_->KeyFor(problem, size);
    if (!options_.again) {
      if (const auto found = store_.Find(key, meter_->torch_version())) return *found;
    }
    try {
      Baseline baseline = meter_->Measure(problem, size, label, {&progress_, interrupt_.flag()});
      progress_.Line(fmt::format("{}  {}", label, ResultOf(baseline)));
      return baseline;
    } catch (const Error& error) {
      // One problem failed: the others are measured all the same. Nothing is stored for it.
      if (error.code() != ExitCode::kBroken || problems_.size() == 1) throw;
      progress_.Phase("");
      progress_.Line(fmt::format("{}  {}", label, error.what()));
      broken_ = true;
      Baseline none;
      none.key = key;
      none.problem = problem.id;
      none.torch_version = meter_->torch_version();
      none.failure = error.what();
      return none;
    }
  }

  static std::string ResultOf(const Baseline& baseline) {
    if (!baseline.failure.empty()) return baseline.failure;
    std::string text = fmt::format("eager {:.1f} us", baseline.eager_us);
    if (baseline.HasCompiled())
      text += fmt::format(", torch.compile {:.1f} us, {:.3g}x", baseline.compiled_us,
                          baseline.CompileOverEager());
    return text;
  }

  BaselineOptions options_;
  const std::vector<Problem> problems_;
  const std::unique_ptr<Meter> meter_;
  const BaselineStore store_;
  const InterruptGuard interrupt_;
  Progress progress_;
  bool broken_ = false;
};

}  // namespace

void AddBaselineCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<BaselineOptions>();
  CLI::App* command =
      app.add_subcommand("baseline", "Measure eager, and on a GPU torch.compile, and store what they take");
  command->footer(kBaselineExamples);
  CLI::Option* problem = command->add_option("--problem", options->problems, "Ids (level1/19) or TOML files");
  command->add_option("--suite", options->suite, "All problems of a level: level1")->excludes(problem);
  command->add_option("--size", options->size, "Size set (default: full on a GPU, small on a CPU)");
  command->add_option("--tf32", options->asked.tf32, "reference: float32 products may be rounded to TF32")
      ->check(CLI::IsMember({"off", "reference"}))
      ->capture_default_str();
  AddPrecisionOption(command, &options->asked.precision);
  command->add_option("--mode", options->mode, "Of torch.compile")
      ->check(CLI::IsMember(TorchCompileModes()))
      ->capture_default_str();
  command->add_option("--device", options->device, "auto (the first GPU, else the CPU), cpu, or cuda:N")
      ->check(WhyNoDevice)
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a line");
  command->add_flag("--again", options->again, "Measure what is stored too, and replace it");
  command->callback([options, action] { *action = [options] { return Baselines(*options).Run(); }; });
}

}  // namespace kevin
