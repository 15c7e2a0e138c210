// GPU candidates up to the moment before anything runs, with no GPU: the red team's, hostile and correct, and
// what the search writes. What reaches a GPU, and only that, is to be judged there (gpu_red_team_test).

#include "tests/env/gpu/gpu_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>

#include "env/gpu/launch/launch_function.h"
#include "env/gpu/runner/launch_plan.h"
#include "policies/search/setting_text.h"
#include "policies/search/task_program.h"
#include "tests/env/gpu/gpu_fixture.h"
#include "tests/folders.h"
#include "tests/support/search_text.h"

namespace kevin {
namespace {

struct Stop {
  std::string where;  // "interpreter", "compiler", "time limit", "inspection", "plan"; empty: it would run
  std::string message;
};

Stop StopOf(CompileFarm& farm, const GpuCandidate& one) {
  Workload workload;
  workload.precision = one.precision;
  const Problem problem = workload.Apply(ListedProblem(one.problem));
  const SizedProblem sized = AtSize(problem, one.size);
  try {
    const InterpretedLaunch launch = InterpretLaunch(sized, one.candidate.kind, one.candidate.source);
    GpuCompileRequest request;
    request.kind = one.candidate.kind;
    request.device_text = launch.split.device_text;
    request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
    for (const ConstantValue& constant : launch.list.constants) request.variables.push_back(constant.symbol);
    request.symbols = sized.symbols;
    const GpuCompiled compiled = farm.Compile(request);
    if (compiled.timed_out) return {"time limit", fmt::format("after {:.0f} s", compiled.seconds)};
    if (!compiled.refused.empty()) return {"inspection", compiled.refused};
    if (compiled.module.cubin.empty()) return {"compiler", compiled.log};
    std::string error;
    const std::vector<GlobalVariable> globals = InspectPtx(compiled.module.ptx, false).globals;
    const LaunchPlan plan = MakeLaunchPlan(launch.list, compiled.module, globals, compiled.variables, &error);
    if (!error.empty()) return {"plan", error};
    if (plan.operations.size() != launch.list.operations.size()) return {"plan", "operations are missing"};
    return {};
  } catch (const LaunchException& exception) {
    return {"interpreter", exception.error().message};
  }
}

// In the candidates' order; as many at a time as there are cores.
std::vector<Stop> StopsOf(const std::vector<GpuCandidate>& candidates) {
  Farm farm([](CompileFarmOptions* options) {
    options->processes = 0;
    options->limits.compile_timeout_s = 300;  // no test of speed: this one shares its cores with others
  });
  std::vector<Stop> stops(candidates.size());
  std::atomic<size_t> next = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
      threads.emplace_back([&] {
        for (size_t at = next++; at < candidates.size(); at = next++)
          stops[at] = StopOf(*farm.operator->(), candidates[at]);
      });
    }
  }
  return stops;
}

// Of each kTextStep-th problem from `first`: all of them take a quarter of an hour to compile.
constexpr size_t kTextStep = 8;

std::vector<GpuCandidate> SearchTexts(const std::string& size, size_t first) {
  std::vector<GpuCandidate> texts;
  const ProblemSet problems(SourceFolder() / "env/problems");
  const std::vector<std::string> ids = problems.Ids();
  for (size_t i = first; i < ids.size(); i += kTextStep) {
    const std::string& id = ids[i];
    std::string why;
    const std::string text = testing::SearchText(problems.Find(id), size, "cuda", &why);
    INFO(id << ": " << why);
    CHECK(why.empty());
    if (!why.empty()) continue;
    GpuCandidate one;
    one.name = "search";
    one.problem = id;
    one.size = size;
    one.candidate = {"cuda", text};
    texts.push_back(std::move(one));
  }
  return texts;
}

// The text of `program`, whose problem is `id` at full in `precision`.
GpuCandidate SearchCandidate(const std::string& name, const std::string& id, const std::string& precision,
                             const search::TaskProgram& program, const std::vector<search::Knob>& knobs,
                             const search::Setting& setting) {
  const std::string body = search::TextOf(program, setting);
  GpuCandidate one;
  one.name = name, one.problem = id, one.size = "full", one.precision = precision;
  one.candidate = {"cuda", search::KnobLines(knobs, setting, 0, body) + body};
  return one;
}

void CheckNothingStops(const std::vector<GpuCandidate>& candidates) {
  const std::vector<Stop> stops = StopsOf(candidates);
  for (size_t i = 0; i < candidates.size(); ++i) {
    INFO(candidates[i].name << " for " << candidates[i].problem << " at " << candidates[i].size);
    INFO(stops[i].where << ": " << stops[i].message);
    CHECK(stops[i].where.empty());
  }
}

}  // namespace

TEST_CASE("what the search writes in 16 bits comes through, also by wgmma") {
  if (!TestToolchain()) return;
  const ProblemSet problems(SourceFolder() / "env/problems");
  std::vector<GpuCandidate> texts;
  size_t by_wgmma = 0;
  // Matrices of all orders, batches, few terms, many terms; convolutions with strides, groups, 1 to 3 dimensions;
  // transposed ones; wide attention; a network.
  const std::vector<std::string> ids = {
      "level1/1",  "level1/3",  "level1/6",  "level1/9",  "level1/16", "level1/17", "level1/18",
      "level1/50", "level1/54", "level1/55", "level1/63", "level1/67", "level1/69", "level1/80",
      "level1/81", "level1/87", "level1/97", "level2/12", "level2/37", "level2/1",  "level3/9"};
  for (size_t i = 0; i < ids.size(); ++i) {
    Workload workload;
    workload.precision = i % 2 == 0 ? "fp16" : "bf16";
    Task task = testing::SearchTask(workload.Apply(problems.Find(ids[i])), "full", "cuda");
    task.attempts.push_back({"", "measured", {}, {}, {}, {}});  // a network's first text computes otherwise
    const search::TaskProgram program = search::ProgramsOf(task).at(0);
    const std::vector<search::Knob> knobs = search::KnobsOf(program);
    bool is_by_wgmma = false;
    for (const bool last : {false, true}) {
      // The first arithmetic that is offered is wgmma, or the last one is.
      search::Setting setting;
      for (const search::Knob& knob : knobs)
        setting[knob.name] = last && knob.name.starts_with("VIA") ? knob.values.back() : knob.values.at(0);
      texts.push_back(SearchCandidate(last ? "search, last arithmetic" : "search", ids[i], workload.precision,
                                      program, knobs, setting));
      is_by_wgmma |= texts.back().candidate.source.find("ContractTiles<kTileM") != std::string::npos;
    }
    by_wgmma += is_by_wgmma;
  }
  CHECK(by_wgmma == ids.size());
  CheckNothingStops(texts);
}

// At small, also products whose warps divide the terms.
TEST_CASE("what the search writes for attention in 16 bits comes through, on the tensor cores") {
  if (!TestToolchain()) return;
  const ProblemSet problems(SourceFolder() / "env/problems");
  std::vector<GpuCandidate> texts;
  size_t divided = 0;
  for (const std::string id : {"level3/28", "level3/31", "level3/43"}) {
    for (const std::string precision : {"fp16", "bf16"}) {
      for (const std::string size : {"full", "small"}) {
        Workload workload;
        workload.precision = precision;
        const Task task = testing::SearchTask(workload.Apply(problems.Find(id)), size, "cuda");
        const search::TaskProgram program = search::ProgramsOf(task).at(0);
        const std::vector<search::Knob> knobs = search::KnobsOf(program);
        search::Setting setting;
        for (const search::Knob& knob : knobs) setting[knob.name] = knob.values.at(0);
        texts.push_back(SearchCandidate("search", id, precision, program, knobs, setting));
        texts.back().size = size;
        const std::string& source = texts.back().candidate.source;
        INFO(id << " at " << size);
        CHECK(source.find("AttendTiles<kQ") != std::string::npos);
        divided += source.find(" / 16 ? 8 / ") != std::string::npos;
      }
    }
  }
  CHECK(divided >= 2);
  CheckNothingStops(texts);
}

// Weights of 16 bits meet intermediates of fp32: products, convolutions, attention, recurrent layers, norms.
TEST_CASE("what the search writes after an incorrect result in 16 bits comes through") {
  if (!TestToolchain()) return;
  const ProblemSet problems(SourceFolder() / "env/problems");
  std::vector<GpuCandidate> texts;
  const std::vector<std::string> ids = {"level3/1",  "level3/9",  "level3/21", "level3/31",
                                        "level3/37", "level3/44", "level3/48"};
  for (size_t i = 0; i < ids.size(); ++i) {
    Workload workload;
    workload.precision = i % 2 == 0 ? "fp16" : "bf16";
    Task task = testing::SearchTask(workload.Apply(problems.Find(ids[i])), "full", "cuda");
    for (const char* outcome : {"measured", "wrong"}) task.attempts.push_back({"", outcome, {}, {}, {}, {}});
    const search::TaskProgram program = search::ProgramsOf(task).at(0);
    INFO(ids[i]);
    CHECK(program.is_widened_late);
    const std::vector<search::Knob> knobs = search::KnobsOf(program);
    search::Setting setting;
    for (const search::Knob& knob : knobs) setting[knob.name] = knob.values.at(0);
    texts.push_back(SearchCandidate("search after an incorrect result", ids[i], workload.precision, program,
                                    knobs, setting));
  }
  CheckNothingStops(texts);
}

TEST_CASE("the first text of a chain in 16 bits keeps fp32, the next ones 16 bits until one is incorrect") {
  const ProblemSet problems(SourceFolder() / "env/problems");
  Workload workload;
  workload.precision = "bf16";
  const auto program_after = [&](const std::string& id, const std::vector<std::string>& outcomes) {
    Task task = testing::SearchTask(workload.Apply(problems.Find(id)), "full", "cuda");
    for (const std::string& outcome : outcomes) task.attempts.push_back({"", outcome, {}, {}, {}, {}});
    return search::ProgramsOf(task).at(0);
  };
  const auto narrow = [](const search::TaskProgram& at) {
    return std::count_if(
        at.program.buffers.begin(), at.program.buffers.end(),
        [](const search::Buffer& buffer) { return buffer.argument < 0 && buffer.dtype == "bfloat16"; });
  };
  const search::TaskProgram first = program_after("level3/9", {}),
                            next = program_after("level3/9", {"measured"}),
                            late = program_after("level3/9", {"measured", "wrong"});
  CHECK((narrow(first) == 0 && first.attempts_of_others == 0));
  CHECK((first.is_widened_first && !first.is_widened_late));
  CHECK((narrow(next) > 4 && next.attempts_of_others == 1 && !next.is_widened_first));
  CHECK((narrow(late) == 0 && late.attempts_of_others == 2 && late.is_widened_late));
  CHECK(narrow(program_after("level3/1", {})) == 0);  // two products
  CHECK(narrow(program_after("level3/1", {"measured"})) > 0);
  CHECK(narrow(program_after("level3/44", {})) > 0);  // attention
}

TEST_CASE("attacks that need not run do not") {
  if (!TestToolchain()) return;
  const std::vector<GpuCandidate> attacks = GpuAttacks();
  REQUIRE(attacks.size() > 100);
  const std::vector<Stop> stops = StopsOf(attacks);
  for (size_t i = 0; i < attacks.size(); ++i) {
    INFO(attacks[i].name << ": " << stops[i].where << ": " << stops[i].message);
    CHECK(stops[i].where.empty() == (attacks[i].ending != Ending::kStopped));
    CHECK(stops[i].message.find(attacks[i].complaint) != std::string::npos);
  }
}

TEST_CASE("correct GPU kernels come through") {
  if (!TestToolchain()) return;
  const std::vector<GpuCandidate> correct = CorrectGpuKernels();
  REQUIRE(correct.size() > 10);
  CHECK(std::count_if(correct.begin(), correct.end(),
                      [](const GpuCandidate& one) { return one.candidate.kind == "ptx"; }) == 1);
  CheckNothingStops(correct);
}

TEST_CASE("what the search writes for the listed problems comes through") {
  if (!TestToolchain()) return;
  std::vector<GpuCandidate> texts = SearchTexts("full", 0);
  for (GpuCandidate& text : SearchTexts("small", kTextStep / 2)) texts.push_back(std::move(text));
  REQUIRE(texts.size() > 60);
  CheckNothingStops(texts);
}

}  // namespace kevin
