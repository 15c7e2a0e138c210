#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "env/error.h"
#include "env/gpu/gpu_environment.h"
#include "env/problem/problem.h"
#include "env/process/machine.h"
#include "tests/bench/bench_gpu_parts.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSlowest = 10;
constexpr double kGigabyte = 1e9;

struct Prepared {
  std::string id, name, failure;
  double seconds = 0;  // from asking to having the truth
  Preparation preparation;
};

std::vector<std::string> Chosen(const ProblemSet& problems, const PrepareChoice& choice) {
  std::vector<std::string> ids = ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), choice.suite);
  if (choice.from.empty()) return ids;
  const auto first = std::find(ids.begin(), ids.end(), choice.from);
  if (first == ids.end())
    throw Error(ExitCode::kBadRequest, fmt::format("--from {}: not in {}", choice.from, choice.suite),
                "give one of its ids");
  return {first, ids.end()};
}

Prepared Prepare(GpuEnvironment& environment, const Problem& problem, const std::string& size) {
  Prepared prepared{problem.id, problem.name, "", 0, {}};
  const auto start = Clock::now();
  try {
    EvaluateOptions options;
    options.workload.size = size;
    prepared.preparation = environment.Prepare(problem, options);
  } catch (const Error& error) {  // it does not fit, or torch's operator cannot: that is a row of the table
    prepared.failure = error.what();
  }
  prepared.seconds = SecondsSince(start);
  return prepared;
}

std::string LineOf(const Prepared& one) {
  if (!one.failure.empty())
    return fmt::format("{:<11} {:6.2f} s  FAILED: {}", one.id, one.seconds, one.failure);
  const Preparation& p = one.preparation;
  return fmt::format(
      "{:<11} {:6.2f} s  session {:.2f}, inputs {:.3f}, reference {:.4f}, truth {:.3f}; {} slots, {:.1f} GB  "
      "{}",
      one.id, one.seconds, p.session_s, p.draw_s, p.reference_us * 1e-6, p.truth_s, p.slots,
      static_cast<double>(p.used_bytes) / kGigabyte, one.name);
}

FigureRow RowOf(const Prepared& one) {
  const Preparation& p = one.preparation;
  FigureRow row{"prepare", one.id, {}};
  row.figures = {{"failed", one.failure.empty() ? 0.0 : 1.0, 0, Goal{true, 0}},
                 {"seconds", one.seconds, 2, {}},
                 {"session_s", p.session_s, 2, {}},
                 {"draw_s", p.draw_s, 3, {}},
                 {"reference_s", p.reference_us * 1e-6, 4, {}},
                 {"truth_s", p.truth_s, 3, {}},
                 {"slots", static_cast<double>(p.slots), 0, {}},
                 {"used_gb", static_cast<double>(p.used_bytes) / kGigabyte, 1, {}}};
  return row;
}

void NoteSummary(std::vector<Prepared> all, size_t left, const BenchFigures& figures) {
  const auto failed =
      std::count_if(all.begin(), all.end(), [](const auto& one) { return !one.failure.empty(); });
  double seconds = 0;
  for (const Prepared& one : all) seconds += one.seconds;
  figures.Note(fmt::format("prepare: {} of {} problems in {:.0f} s", all.size() - static_cast<size_t>(failed),
                           all.size(), seconds));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  for (size_t i = 0; i < std::min(all.size(), kSlowest); ++i)
    figures.Note(fmt::format("  slowest {:>2}: {}", i + 1, LineOf(all[i])));
  for (const Prepared& one : all) {
    if (!one.failure.empty()) figures.Note("  " + LineOf(one));
  }
  if (left > 0) figures.Note(fmt::format("  {} problems are left; go on with --from", left));
}

}  // namespace

void BenchPrepare(Environment* environment, const PrepareChoice& choice, BenchFigures* figures) {
  auto& gpu = dynamic_cast<GpuEnvironment&>(*environment);
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  const std::vector<std::string> ids = Chosen(problems, choice);
  std::vector<Prepared> all;
  const auto start = Clock::now();
  for (const std::string& id : ids) {
    if (choice.seconds > 0 && SecondsSince(start) > choice.seconds) {
      figures->Note(fmt::format("prepare: out of time before {}", id));
      break;
    }
    all.push_back(Prepare(gpu, problems.Find(id), choice.size));
    figures->Note(LineOf(all.back()));
    figures->Add(RowOf(all.back()));
  }
  const size_t left = ids.size() - all.size();
  NoteSummary(std::move(all), left, *figures);
}

}  // namespace kevin
