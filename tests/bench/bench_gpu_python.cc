#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "env/error.h"
#include "env/printable.h"
#include "env/process/machine.h"
#include "env/verdict/words.h"
#include "tests/bench/bench_gpu_parts.h"
#include "tests/bench/bench_kernels.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPlanted = 0.05;
constexpr double kLeastSharePct = 95, kMostOffPct = 2, kLongCall_us = 40;

constexpr const char* kHead =
    "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n"
    "    def forward(self, x):\n";

std::string EagerRelu(int number) {
  return fmt::format("# {}\n{}        return torch.relu(x)\n", number, kHead);
}

// Eager's ReLU, and a part of it once more.
std::string SlowerRelu(int number) {
  return fmt::format(
      "# {}\n{}        again = torch.relu(x.view(-1)[: int(x.numel() * {})])\n        return torch.relu(x)\n",
      number, kHead, kPlanted);
}

// The kernel of EagerFormRelu(), by load_inline.
std::string OwnRelu(int64_t elements) {
  const std::string text = EagerFormRelu();
  std::string source =
      "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n\n"
      "cuda = r\"\"\"\n#include <torch/extension.h>\n";
  source +=
      fmt::format("static constexpr long N = {};\n", elements) + text.substr(0, text.find("void launch("));
  source += R"(
torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_like(x);
  relu<<<(N / 4 + 511) / 512, 128>>>((const float4*)x.data_ptr<float>(), (float4*)out.data_ptr<float>());
  return out;
}
""")";
  source +=
      "\nextension = load_inline(\"eager_form\", \"torch::Tensor run(torch::Tensor x);\", cuda, functions=[\"run\"])\n\n\n"
      "class ModelNew(nn.Module):\n    def forward(self, x):\n        return extension.run(x)\n";
  return source;
}

struct PythonTally {
  std::vector<double> ratios, low, high, device_us, candidate_us, turn_s, compile_s, verify_s, measure_s;
  int holds = 0, measured = 0, others = 0, fast = 0, slow = 0, same = 0;
  std::string reason;  // of the latest other outcome
};

void Count(const Evaluation& evaluation, double turn_s, PythonTally* tally) {
  const auto* measured = std::get_if<Measured>(&evaluation.outcome);
  if (measured == nullptr) {
    ++tally->others;
    tally->reason = fmt::format("{}: {}", OutcomeName(evaluation.outcome), OutcomeReason(evaluation.outcome));
    return;
  }
  ++tally->measured;
  tally->ratios.push_back(measured->speedup.value);
  tally->holds += measured->speedup.low <= 1 && measured->speedup.high >= 1;
  tally->low.push_back(measured->speedup.low);
  tally->high.push_back(measured->speedup.high);
  tally->fast += measured->verdict == Verdict::kFast;
  tally->slow += measured->verdict == Verdict::kSlow;
  tally->same += measured->verdict == Verdict::kSame;
  tally->candidate_us.push_back(measured->candidate_us);
  tally->turn_s.push_back(turn_s);
  tally->compile_s.push_back(evaluation.compile_s);
  tally->verify_s.push_back(evaluation.verify_s);
  tally->measure_s.push_back(evaluation.measure_s);
  if (evaluation.device_us) tally->device_us.push_back(*evaluation.device_us);
}

double SharePct(int count, const PythonTally& tally) { return 100.0 * count / std::max(tally.measured, 1); }

class PythonPart {
 public:
  PythonPart(Environment* environment, int repeats, BenchFigures* figures)
      : environment_(environment), repeats_(repeats), figures_(figures) {}

  void Run(const std::string& name, int64_t elements) {
    const Problem problem = ReluProblem(elements);
    const auto start = Clock::now();
    Judge(problem, {"modelnew", EagerRelu(-1)});
    const double first_s = SecondsSince(start);
    const PythonTally same = Repeat(name + " A/A", problem, repeats_, EagerRelu);
    AddSame(name, same, first_s);
    AddSlower(name, Repeat(name + " slower", problem, repeats_, SlowerRelu));
    AddDevice(name, problem, elements, same);
  }

 private:
  Evaluation Judge(const Problem& problem, const Candidate& candidate) {
    EvaluateOptions options;
    options.workload.size = "full";
    options.workload.rules = "open";
    return environment_->Evaluate(problem, candidate, options);
  }

  template <typename Source>
  PythonTally Repeat(const std::string& name, const Problem& problem, int repeats, const Source& source) {
    PythonTally tally;
    for (int i = 0; i < repeats; ++i) {
      const auto start = Clock::now();
      const Evaluation evaluation = Judge(problem, {"modelnew", source(i)});
      Count(evaluation, SecondsSince(start), &tally);
      const auto* measured = std::get_if<Measured>(&evaluation.outcome);
      figures_->Note(fmt::format(
          "python: {}: {} of {}: {}, {:.1f} us a call, {:.1f} s; median {:.4f}x, holds 1.0 {} times", name,
          i + 1, repeats,
          measured ? RatioText(measured->speedup.value, measured->speedup.low, measured->speedup.high)
                   : Printable(tally.reason.substr(0, 200)),
          measured ? measured->candidate_us : 0.0, SecondsSince(start), QuantileOf(tally.ratios, 0.5),
          tally.holds));
    }
    return tally;
  }

  void AddSame(const std::string& name, const PythonTally& tally, double first_s) {
    std::vector<double> off;
    for (const double ratio : tally.ratios) off.push_back(std::abs(std::log(ratio)));
    // A shorter call is mostly its launch.
    const bool is_long = QuantileOf(tally.candidate_us, 0.5) >= kLongCall_us;
    const auto off_goal = is_long ? std::optional(Goal{true, kMostOffPct}) : std::nullopt;
    figures_->Add({"python A/A",
                   name,
                   {{"call_us", QuantileOf(tally.candidate_us, 0.5), 2, {}},
                    {"measured", static_cast<double>(tally.measured), 0, {}},
                    {"not_measured", static_cast<double>(tally.others), 0, Goal{true, 0}},
                    {"speedup", QuantileOf(tally.ratios, 0.5), 4, {}},
                    {"median_off_pct", 100 * QuantileOf(off, 0.5), 2, off_goal},
                    {"worst_off_pct", 100 * QuantileOf(off, 1), 2, {}},
                    {"holds_1_pct", SharePct(tally.holds, tally), 1, Goal{false, kLeastSharePct}},
                    {"false_fast", static_cast<double>(tally.fast), 0, {}},
                    {"false_slow", static_cast<double>(tally.slow), 0, {}},
                    {"first_s", first_s, 2, {}},
                    {"turn_s", QuantileOf(tally.turn_s, 0.5), 3, {}},
                    {"compile_s", QuantileOf(tally.compile_s, 0.5), 3, {}},
                    {"verify_s", QuantileOf(tally.verify_s, 0.5), 3, {}},
                    {"measure_s", QuantileOf(tally.measure_s, 0.5), 3, {}}}});
  }

  void AddSlower(const std::string& name, const PythonTally& tally) {
    figures_->Add({"python slower",
                   name,
                   {{"planted_pct", 100 * kPlanted, 1, {}},
                    {"measured", static_cast<double>(tally.measured), 0, {}},
                    {"not_measured", static_cast<double>(tally.others), 0, Goal{true, 0}},
                    {"median_slower_pct", 100 * (1 / QuantileOf(tally.ratios, 0.5) - 1), 2, {}},
                    {"called_slow", static_cast<double>(tally.slow), 0, {}},
                    {"found_pct", SharePct(tally.slow, tally), 1, Goal{false, kLeastSharePct}},
                    {"called_fast", static_cast<double>(tally.fast), 0, Goal{true, 0}}}});
  }

  // One kernel as `cuda` by the events of its runner, and as `modelnew` by the profiler of its worker.
  void AddDevice(const std::string& name, const Problem& problem, int64_t elements,
                 const PythonTally& eager) {
    const Evaluation cuda = Judge(problem, {"cuda", EagerFormRelu()});
    const Evaluation own = Judge(problem, {"modelnew", OwnRelu(elements)});
    for (const Evaluation* one : {&cuda, &own}) {
      if (!std::holds_alternative<Measured>(one->outcome))
        figures_->Note(
            fmt::format("python: {}: {}: {}", name, OutcomeName(one->outcome), OutcomeReason(one->outcome)));
    }
    const auto* as_cuda = std::get_if<Measured>(&cuda.outcome);
    const auto* as_python = std::get_if<Measured>(&own.outcome);
    figures_->Add({"python device time",
                   name,
                   {{"cuda_us", as_cuda ? as_cuda->candidate_us : NAN, 2, {}},
                    {"modelnew_device_us", own.device_us.value_or(NAN), 2, {}},
                    {"modelnew_call_us", as_python ? as_python->candidate_us : NAN, 2, {}},
                    {"own_share", own.own_share.value_or(NAN), 3, Goal{false, 0.95}},
                    {"eager_device_us", QuantileOf(eager.device_us, 0.5), 2, {}}}});
  }

  Environment* environment_;
  int repeats_;
  BenchFigures* figures_;
};

}  // namespace

void BenchPython(Environment* environment, int repeats, const std::string& at, BenchFigures* figures) {
  constexpr std::pair<const char*, int64_t> kSizes[] = {
      {"5us", int64_t{1} << 19}, {"50us", int64_t{3} << 23}, {"1ms", int64_t{1} << 29}};
  PythonPart part(environment, repeats, figures);
  bool has_run = false;
  for (const auto& [name, elements] : kSizes) {
    if (!at.empty() && at != name) continue;
    part.Run(name, elements);
    has_run = true;
  }
  if (!has_run)
    throw Error(ExitCode::kBadRequest, fmt::format("python: there is no kernel time {}", at),
                "--at 5us, 50us or 1ms");
}

}  // namespace kevin
