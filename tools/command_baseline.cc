#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "env/error.h"
#include "tools/baselines.h"
#include "tools/commands.h"
#include "tools/interrupt.h"
#include "tools/places.h"
#include "tools/suites.h"
#include "tools/table.h"

namespace kevin {
namespace {

constexpr const char* kExamples = R"(Examples:
  kevin baseline --problem level1/19               eager and torch.compile on the first GPU, some 30 s; stored
  kevin baseline --problem level1/19 level1/23     several
  kevin baseline --suite level1                    a whole level; what is stored already is not measured again
  kevin baseline --suite level1 --tf32 reference   with TF32 allowed, as in `kevin run --tf32 reference`

Needs a Python with torch 2.11 and CUDA: python3 on the PATH, or the one that KEVIN_PYTHON names. `kevin run` and
`kevin bench` look up what is stored; `kevin problems ID` shows it.)";

struct BaselineOptions {
  std::vector<std::string> problems;
  std::string suite, size = "full", tf32 = "off", device = "auto";
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
  for (const Problem& problem : problems) AtSize(problem, options.size);  // said before anything starts
  return problems;
}

GpuFound PickGpu(const std::string& device) {
  std::string why_none;
  const std::vector<GpuFound> gpus = FindGpus(&why_none);
  for (const GpuFound& gpu : gpus) {
    if (device == "auto" || device == fmt::format("cuda:{}", gpu.index)) return gpu;
  }
  throw Error(ExitCode::kMachine,
              gpus.empty() ? "torch.compile is measured on a GPU: " + why_none
                           : fmt::format("{}: this machine has {} GPU{}", device, gpus.size(),
                                         gpus.size() > 1 ? "s" : ""),
              "run `kevin doctor`");
}

class Baselines {
 public:
  explicit Baselines(const BaselineOptions& options)
      : options_(options),
        problems_(Select(options)),
        gpu_(PickGpu(options.device)),
        python_(FindPythonTorch()),
        store_(CacheDirectory()),
        progress_(stderr) {}

  int Run() {
    progress_.Line(fmt::format("torch.compile {} of {}, on cuda:{}: {}, size {}", python_.torch_version,
                               python_.python.string(), gpu_.index, gpu_.name, options_.size));
    std::vector<std::vector<std::string>> table = {kBaselineHeading};
    for (size_t i = 0; i < problems_.size(); ++i) {
      const Baseline baseline =
          Get(problems_[i], fmt::format("{}/{} {}", i + 1, problems_.size(), problems_[i].id));
      table.push_back(BaselineRow(baseline));
      if (options_.json) {
        fmt::print("{}\n", BaselineEvent(baseline).dump(-1, ' ', false, Json::error_handler_t::replace));
        std::fflush(stdout);
      }
    }
    if (!options_.json) fmt::print("{}", AlignedTable(table));
    return static_cast<int>(broken_ ? ExitCode::kBroken : ExitCode::kDone);
  }

 private:
  using Json = nlohmann::ordered_json;

  Baseline Get(const Problem& problem, const std::string& label) {
    const bool tf32 = options_.tf32 == "reference";
    const BaselineKey key = KeyOfBaseline(problem, options_.size, tf32, gpu_);
    if (!options_.again) {
      if (const auto found = store_.Find(key, python_.torch_version)) return *found;
    }
    try {
      Baseline baseline = MeasureBaseline({&problem, options_.size, tf32}, gpu_, python_, label,
                                          {&progress_, interrupt_.flag()});
      progress_.Line(
          fmt::format("{}  {}", label,
                      baseline.failure.empty()
                          ? fmt::format("eager {:.1f} us, torch.compile {:.1f} us, {:.3g}x",
                                        baseline.eager_us, baseline.compiled_us, baseline.CompileOverEager())
                          : baseline.failure));
      return baseline;
    } catch (const Error& error) {
      // One problem's Python broke: the others are still worth having. Nothing is stored for it.
      if (error.code() != ExitCode::kBroken || problems_.size() == 1) throw;
      progress_.Phase("");
      progress_.Line(fmt::format("{}  {}", label, error.what()));
      broken_ = true;
      Baseline none;
      none.key = key;
      none.problem = problem.id;
      none.torch_version = python_.torch_version;
      none.failure = error.what();
      return none;
    }
  }

  const BaselineOptions& options_;
  const std::vector<Problem> problems_;
  const GpuFound gpu_;
  const PythonTorch python_;
  const BaselineStore store_;
  const InterruptGuard interrupt_;
  Progress progress_;
  bool broken_ = false;
};

std::string WhyNoGpu(const std::string& device) {
  const bool fits = device == "auto" || (device.starts_with("cuda:") && device.size() > 5 &&
                                         device.find_first_not_of("0123456789", 5) == std::string::npos);
  return fits ? "" : device + " is not auto or cuda:N";
}

}  // namespace

void AddBaselineCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<BaselineOptions>();
  CLI::App* command =
      app.add_subcommand("baseline", "Measure eager and torch.compile on a GPU, and store both");
  command->footer(kExamples);
  CLI::Option* problem = command->add_option("--problem", options->problems, "Ids (level1/19) or TOML files");
  command->add_option("--suite", options->suite, "All problems of a level: level1")->excludes(problem);
  command->add_option("--size", options->size, "Size set")->capture_default_str();
  command->add_option("--tf32", options->tf32, "reference: float32 products may be rounded to TF32")
      ->check(CLI::IsMember({"off", "reference"}))
      ->capture_default_str();
  command->add_option("--device", options->device, "auto (the first GPU), or cuda:N")
      ->check(WhyNoGpu)
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a line");
  command->add_flag("--again", options->again, "Measure what is stored too, and replace it");
  command->callback([options, action] { *action = [options] { return Baselines(*options).Run(); }; });
}

}  // namespace kevin
