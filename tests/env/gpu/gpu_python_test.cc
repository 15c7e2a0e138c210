// Kinds `modelnew` and `triton` on a GPU, judged whole: attacks, correct candidates, rules. Needs a Python with torch and CUDA
// (KEVIN_PYTHON). Without a GPU this is skipped; host_device_test.cc tests the flow without one.

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/env/gpu/gpu_fixture.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

fs::path Attacks() { return SourceFolder() / "tests/env/python/red_team"; }

std::vector<fs::path> PythonFilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".py") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

constexpr double kCallTimeout_s = 12;  // torch.compile imports for seconds

Evaluation JudgedOnGpu(const fs::path& file, const std::string& problem, const std::string& rules,
                       const std::string& kind = "modelnew", bool confirm = false) {
  EvaluateOptions options;
  options.workload.rules = rules;
  options.workload.size = "small";
  options.confirm = confirm;
  const Evaluation evaluation =
      SharedGpu(kCallTimeout_s)->Evaluate(ListedProblem(problem), {kind, TextOf(file)}, options);
  std::printf("  %-28s %-14s own %5.2f device %8.2f us, %4.1f s  %s\n", file.stem().c_str(),
              OutcomeName(evaluation.outcome), evaluation.own_share.value_or(-1),
              evaluation.device_us.value_or(-1),
              evaluation.compile_s + evaluation.verify_s + evaluation.measure_s,
              Described(evaluation.outcome).c_str());
  std::fflush(stdout);
  return evaluation;
}

const std::set<std::string> kWithWeights = {
    "seeds_weights",     "no_weights",           "folds_weights",
    "remembers_weights", "keeps_seeded_weights", "keeps_first_drawing",
    "seeds_in_forward",  "restores_the_seed",    "returns_expanded_weight"};
}  // namespace

TEST_CASE("no attack of a Python candidate on a GPU gains anything") {
  if (!SharedGpu(kCallTimeout_s)) return;
  std::vector<fs::path> attacks = PythonFilesIn(Attacks() / "gpu");
  for (const fs::path& file : PythonFilesIn(Attacks())) attacks.push_back(file);
  REQUIRE(attacks.size() > 40);
  int blocked = 0;
  for (const fs::path& file : attacks) {
    INFO(file);
    const std::string problem = kWithWeights.count(file.stem()) > 0 ? "level1/33"
                                : file.stem() == "two_streams"      ? "level1/40"
                                                                    : "level1/19";
    const Outcome outcome = JudgedOnGpu(file, problem, "open").outcome;
    // An attack that stumbles over the device itself shows nothing.
    for (const char* stumbles : {"on the same device", "device type tensor to numpy"})
      CHECK(OutcomeReason(outcome).find(stumbles) == std::string::npos);
    bool is_blocked = !std::holds_alternative<Measured>(outcome);
    if (!is_blocked && !SeemsFaster(outcome)) is_blocked = true;
    if (!is_blocked) is_blocked = !SeemsFaster(JudgedOnGpu(file, problem, "open", "modelnew", true).outcome);
    CHECK(is_blocked);
    blocked += is_blocked;
  }
  std::printf("attacks blocked %d/%zu\n", blocked, attacks.size());
  CHECK(std::holds_alternative<Measured>(
      JudgedOnGpu(Attacks() / "correct/relu.py", "level1/19", "open").outcome));
}

TEST_CASE("a Python candidate that is coarse once it is timed on a GPU is wrong") {
  if (!SharedGpu(kCallTimeout_s)) return;
  const Outcome outcome =
      JudgedOnGpu(Attacks() / "products/coarse_when_timed.py", "level1/1", "open").outcome;
  INFO(OutcomeReason(outcome));
  CHECK(std::holds_alternative<Wrong>(outcome));
}

TEST_CASE("correct Python candidates pass on a GPU") {
  if (!SharedGpu(kCallTimeout_s)) return;
  std::vector<fs::path> files = PythonFilesIn(Attacks() / "gpu/correct");
  for (const char* name : {"relu", "functional", "other_formula", "own_autograd_function", "strided_output"})
    files.push_back(Attacks() / "correct" / (std::string(name) + ".py"));
  int passed = 0;
  for (const fs::path& file : files) {
    INFO(file);
    const bool is_measured = std::holds_alternative<Measured>(JudgedOnGpu(file, "level1/19", "open").outcome);
    CHECK(is_measured);
    passed += is_measured;
  }
  std::printf("correct candidates passed %d/%zu\n", passed, files.size());
}

TEST_CASE("kernels in Triton and in CUDA C++ count as own on a GPU, and torch's do not") {
  if (!SharedGpu(kCallTimeout_s)) return;
  for (const char* name : {"gpu/correct/load_inline", "gpu/correct/triton_autotune", "gpu/triton/modelnew"}) {
    INFO(name);
    const Evaluation own = JudgedOnGpu(Attacks() / (std::string(name) + ".py"), "level1/19", "kevin");
    INFO(OutcomeReason(own.outcome));
    CHECK(std::holds_alternative<Measured>(own.outcome));
    REQUIRE(own.own_share.has_value());
    CHECK(*own.own_share > 0.95);
    REQUIRE(own.device_us.has_value());
    CHECK(*own.device_us > 1);
  }
  const Evaluation triton = JudgedOnGpu(Attacks() / "gpu/triton/triton.py", "level1/19", "kevin", "triton");
  CHECK(std::holds_alternative<Measured>(triton.outcome));
  CHECK(triton.backend == "triton");
  const Evaluation torch = JudgedOnGpu(Attacks() / "correct/relu.py", "level1/19", "kevin");
  REQUIRE(std::holds_alternative<Refused>(torch.outcome));
  CHECK(OutcomeReason(torch.outcome).find("kernels of its own do 0 % of the work") == 0);
}

TEST_CASE("eager as a Python candidate is as fast as eager on a GPU") {
  if (!SharedGpu(kCallTimeout_s)) return;
  for (const char* problem : {"level1/19", "level1/23"}) {
    const fs::path file =
        Attacks() / (problem == std::string("level1/19") ? "correct/relu.py" : "gpu/eager/softmax.py");
    const Evaluation evaluation = JudgedOnGpu(file, problem, "open");
    const auto* measured = std::get_if<Measured>(&evaluation.outcome);
    REQUIRE(measured != nullptr);
    CHECK(measured->speedup.low <= 1);
    CHECK(measured->speedup.high >= 1);
    if (file.stem() == "relu") continue;  // 13 us: too short for an exact ratio
    CHECK(measured->speedup.value == Approx(1).margin(0.03));
  }
}

}  // namespace kevin
