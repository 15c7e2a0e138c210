// The memory: which records count, which problems are near, and what an episode makes of them.

#include "agent/memory.h"

#include <fmt/format.h>

#include <fstream>

#include "agent/episode.h"
#include "env/error.h"
#include "policies/search/search_policy.h"
#include "policies/search/setting_text.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/graph_text.h"
#include "tests/support/knob_environment.h"
#include "tests/trajectories/sample_records.h"
#include "trajectories/formats.h"

namespace kevin {
namespace {

using search::Knob;
using search::Setting;

constexpr const char* kDevice = "cpu: test, 2 threads";

// out = op(x) on N elements.
std::string ProblemText(const std::string& op, int64_t size) {
  return fmt::format(
      "id = \"test/{0}{1}\"\nname = \"{0} of {1}\"\nfamilies = [\"elementwise\"]\n"
      "reference = '''\ndef forward(x):\n    return torch.{0}(x)\n'''\n[sizes.small]\nN = {1}\n"
      "[[inputs]]\nname = \"x\"\nshape = [\"N\"]\n[[outputs]]\nname = \"out\"\nshape = [\"N\"]\n"
      "[cost]\nflops = \"N\"\nbytes = \"8*N\"\nmin_flops = 0\nmin_bytes = \"8*N\"\n",
      op, size);
}

Problem ProblemOf(const std::string& op, int64_t size) { return ParseProblem(ProblemText(op, size), "test"); }

// What torch would say; only of references as above.
std::string GraphOf(const Problem& problem, const std::string& size) {
  const int64_t n = problem.sizes.at(size).at("N");
  const size_t begin = problem.reference.find("torch.") + 6;
  const std::string op = problem.reference.substr(begin, problem.reference.find('(', begin) - begin);
  if (op == "bessel") throw Error(ExitCode::kBadRequest, "no such operation");
  return test::GraphText({{"x", {n}}}, {{op, R"({"self":{"tensor":0}})", {n}}});
}

Task TaskOf(const Problem& problem) {
  const SizedProblem sized = AtSize(problem, "small");
  ConversationContext context;
  context.problem = &sized;
  context.shape_graphs = ShapeGraphs(problem, "small", GraphOf);
  return BuildTask(context, {});
}

// A text of the search policy for the problem, as far as memory reads it.
std::string TextWith(const Problem& problem, const Setting& setting) {
  const std::vector<Knob> knobs = search::KnobsOf(search::ProgramsOf(TaskOf(problem)).at(0));
  Setting all;
  for (const Knob& knob : knobs) all[knob.name] = knob.values.at(0);
  for (const auto& [name, value] : setting) all.at(name) = value;
  return search::KnobLines(knobs, all, 0, "UNROLL STREAM");
}

struct Record {
  std::string op = "relu";
  int64_t size = 1 << 20;
  Setting setting = {};
  double speedup = 1.5;
  std::string outcome = "measured", kind = "cpp", device = kDevice, precision = "fp32", rules = "kevin";
  int rules_version = kRulesVersion;
  bool tf32 = false;
  std::vector<KnobTrial> trials = {};
};

struct Fixture {
  TemporaryFolder folder;
  std::filesystem::path path = folder / "old.db";
  Store store = Store::Open(path, OpenMode::kCreate);
  std::string run = store.BeginRun(SampleRun());
  int number = 0;

  void Add(const Record& r, const std::string& purpose = "turn") {
    const Problem problem = ProblemOf(r.op, r.size);
    EpisodeRecord episode = SampleEpisode(run);
    episode.problem = problem.id, episode.problem_hash = problem.content_hash, episode.kind = r.kind;
    episode.device = r.device, episode.workload.precision = r.precision, episode.workload.tf32 = r.tf32;
    episode.workload.rules = r.rules;
    const std::string id =
        store.BeginEpisode(episode, {problem.content_hash, problem.id, problem.name, problem.text, {}, {}});
    TurnRecord turn = SampleTurn(1, r.speedup);
    turn.trials = r.trials;
    EvaluationRecord& e = turn.evaluation;
    e = SampleEvaluation(r.op == "bessel" ? "int x;" : TextWith(problem, r.setting), r.speedup);
    e.purpose = purpose, e.kind = r.kind, e.problem_hash = problem.content_hash, e.device = r.device;
    e.workload.precision = r.precision, e.workload.tf32 = r.tf32, e.workload.rules = r.rules;
    e.rules_version = r.rules_version;
    e.candidate_us = 100 / r.speedup;
    e.key = ContentHash(std::to_string(++number));
    if (r.outcome != "measured")
      e.outcome = r.outcome, e.correct = false, e.speedup.reset(), e.candidate_us.reset();
    store.AppendTurn(id, turn);
  }

  std::vector<TaskRelated> Related(const std::string& op = "relu", int64_t size = 1 << 20,
                                   const std::string& rules = "kevin") {
    const Problem problem = ProblemOf(op, size);
    Workload workload;
    workload.size = "small", workload.rules = rules;
    return OpenMemory(path)->Related(TaskOf(problem), workload, kDevice, GraphOf);
  }
};

std::vector<std::string> Problems(const std::vector<TaskRelated>& related) {
  std::vector<std::string> ids;
  for (const TaskRelated& one : related) ids.push_back(one.problem);
  return ids;
}

std::string OpenError(const std::filesystem::path& path) {
  try {
    OpenMemory(path);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(std::string(error.next_step()).find("--memory") != std::string::npos);
    return error.what();
  }
  return "opened";
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the nearest problem comes first: the same one, then another operation, then another size") {
  Fixture f;
  f.Add({.op = "tanh", .size = 4096});
  f.Add({.op = "tanh", .setting = {{"UNROLL", 8}}});
  f.Add({.op = "relu", .setting = {{"UNROLL", 2}}, .speedup = 1.2});
  const auto related = f.Related();
  REQUIRE(Problems(related) ==
          std::vector<std::string>{"test/relu1048576", "test/tanh1048576", "test/tanh4096"});
  CHECK(related[0].nearness == Approx(1));
  CHECK((related[1].nearness < 1 && related[1].nearness > related[2].nearness));
  CHECK((related[0].speedup == Approx(1.2) && related[0].candidate_us == Approx(100 / 1.2)));
  CHECK((related[1].name == "tanh of 1048576" && related[1].symbols.at("N") == 1 << 20));
  // The setting as values of the knobs, with their roles and the form of their stage.
  const TaskRelated& tanh = related[1];
  REQUIRE(tanh.results.size() == 1);
  bool found = false;
  for (size_t i = 0; i < tanh.knobs.size(); ++i) {
    if (tanh.knobs[i].name != "UNROLL") continue;
    found = true;
    CHECK((tanh.results[0].values[i] == 8 && !tanh.knobs[i].role.empty() && !tanh.knobs[i].stage.empty()));
  }
  CHECK(found);
}

TEST_CASE("only verdicts that stand, are measured, of the current rules and of the task's kind count") {
  Fixture f;
  f.Add({.speedup = 9, .outcome = "wrong"});
  f.Add({.speedup = 9, .rules_version = kRulesVersion - 1});
  f.Add({.speedup = 9, .kind = "cuda"});
  f.Add({.speedup = 9, .tf32 = true});
  CHECK(f.Related().empty());
  f.Add({.speedup = 1.5});
  REQUIRE(f.Related().size() == 1);
  CHECK(f.Related()[0].speedup == Approx(1.5));
  // A later word overrides it.
  f.Add({.setting = {{"UNROLL", 2}}, .speedup = 5});
  CHECK(f.Related()[0].speedup == Approx(5));
  const std::string last = f.store.ListEpisodes(1)[0].id;
  const EvaluationRecord judged = f.store.LoadEvaluations(last, 1).at(0);
  EvaluationRecord audit = judged;
  audit.purpose = "audit", audit.outcome = "wrong", audit.correct = false, audit.speedup.reset();
  f.store.AppendEvaluation(last, 1, audit, {judged.id});
  CHECK(f.Related()[0].speedup == Approx(1.5));
}

TEST_CASE("kernels under other rules are not related, whichever are faster") {
  Fixture f;
  f.Add({.speedup = 9, .rules = "open"});
  CHECK(f.Related().empty());
  f.Add({.setting = {{"UNROLL", 2}}, .speedup = 1.5});
  CHECK(OpenMemory(f.path)->size() == 2);
  REQUIRE(f.Related().size() == 1);
  CHECK((f.Related()[0].speedup == Approx(1.5) && f.Related()[0].results.size() == 1));
  const auto open = f.Related("relu", 1 << 20, "open");
  REQUIRE(open.size() == 1);
  CHECK(open[0].speedup == Approx(9));
  CHECK(f.Related("relu", 1 << 20, "kernelbench").empty());
}

TEST_CASE("measurements of one text count together, and repetitions of a verdict not at all") {
  Fixture f;
  f.Add({.speedup = 2});
  f.Add({.speedup = 8});
  CHECK(f.Related()[0].speedup == Approx(4));  // the geometric mean
  CHECK(f.Related()[0].results.size() == 1);
  const std::string first = f.store.ListEpisodes(2)[1].id;
  EvaluationRecord repeated = f.store.LoadEvaluations(first, 1).at(0);
  repeated.purpose = "audit", repeated.cached_from = repeated.id, repeated.speedup->value = 100;
  f.store.AppendEvaluation(first, 1, repeated);
  CHECK(f.Related()[0].speedup == Approx(4));
}

TEST_CASE("another device model and another precision are further away") {
  Fixture f;
  f.Add({.device = "cpu: other, 64 threads"});
  CHECK(f.Related()[0].nearness == Approx(0.5));
  Fixture g;
  g.Add({.precision = "bf16"});
  REQUIRE(g.Related().size() == 1);
  CHECK((g.Related()[0].nearness == Approx(0.8) && g.Related()[0].precision == "bf16"));
}

TEST_CASE("trials of knobs are results too") {
  Fixture f;
  f.Add({.setting = {{"UNROLL", 8}},
         .speedup = 2,
         .trials = {{{{"UNROLL", 8}}, "measured", "", 10.0, false, true, 0.1},
                    {{{"UNROLL", 2}}, "measured", "", 40.0, false, false, 0.1},
                    {{{"UNROLL", 1}}, "wrong", "", std::nullopt, false, false, 0.1}}});
  const TaskRelated related = f.Related().at(0);
  REQUIRE(related.results.size() == 2);
  CHECK((related.results[0].speedup == Approx(2) && related.results[1].speedup == Approx(0.5)));
  CHECK(related.chosen == KnobSetting{{"UNROLL", 8}});
}

TEST_CASE("a record that cannot be lowered is left out; a task without a program has nothing related") {
  Fixture f;
  f.Add({.op = "bessel"});
  f.Add({.op = "tanh"});
  CHECK(Problems(f.Related()) == std::vector<std::string>{"test/tanh1048576"});
  Task task = TaskOf(ProblemOf("relu", 64));
  task.shape_graphs = {{{}, "", "unavailable"}};
  CHECK(OpenMemory(f.path)->Related(task, {}, kDevice, GraphOf).empty());
}

TEST_CASE("problems that are left out play no part") {
  Fixture f;
  f.Add({.op = "tanh"});
  f.Add({.op = "tanh", .setting = {{"UNROLL", 2}}});
  f.Add({.op = "sigmoid"});
  const auto memory =
      OpenMemory(f.path, [](const ProblemRecord& problem) { return problem.id == "test/tanh1048576"; });
  CHECK((memory->size() == 1 && memory->left_out() == 1));
  Workload workload;
  workload.size = "small";
  const Task task = TaskOf(ProblemOf("relu", 1 << 20));
  CHECK(Problems(memory->Related(task, workload, kDevice, GraphOf)) ==
        std::vector<std::string>{"test/sigmoid1048576"});
}

TEST_CASE("at most five problems, and the same ones again whatever is written meanwhile") {
  Fixture f;
  for (int64_t size = 1; size <= 8; ++size)
    f.Add({.size = size << 16, .speedup = 1 + 0.1 * static_cast<double>(size)});
  const auto memory = OpenMemory(f.path);
  CHECK(memory->size() == 8);
  Workload workload;
  workload.size = "small";
  const Task task = TaskOf(ProblemOf("relu", 3 << 16));
  const auto once = memory->Related(task, workload, kDevice, GraphOf);
  CHECK((once.size() == kMostRelated && once[0].problem == "test/relu196608"));
  f.Add({.size = 3 << 16, .setting = {{"UNROLL", 1}}, .speedup = 50});
  const auto again = memory->Related(task, workload, kDevice, GraphOf);
  CHECK(Problems(again) == Problems(once));
  CHECK(again[0].speedup == once[0].speedup);
  CHECK(f.Related("relu", 3 << 16)[0].speedup == Approx(50));  // a new reader sees it
}

TEST_CASE("an episode's first text has the setting that was best on a similar problem, and says so") {
  Fixture f;
  f.Add({.op = "tanh", .setting = {{"UNROLL", 2}}, .speedup = 3});
  f.Add({.op = "tanh", .setting = {{"UNROLL", 8}}, .speedup = 1.1});
  class GraphEnvironment : public testing::KnobEnvironment {
    std::string Graph(const Problem& problem, const std::string& size) override {
      return GraphOf(problem, size);
    }
  } environment;
  environment.facts.device = kDevice;
  const Problem problem = ProblemOf("relu", 1 << 20);
  Store store = Store::Open(f.folder / "new.db", OpenMode::kCreate);
  const auto memory = OpenMemory(f.path);
  EpisodeOptions options;
  options.run = store.BeginRun({});
  options.output = f.folder / "out";
  options.turns = 3;
  options.workload.size = "small";
  options.audit_rates = {0, 0};
  const auto run = [&](Memory* with) {
    options.memory = with;
    const auto policy = MakeSearchPolicy();
    return store.LoadTurns(RunEpisode(problem, *policy, environment, store, options, {}, nullptr).id);
  };
  const auto turns = run(memory.get());
  REQUIRE(turns.size() == 3);
  CHECK(Contains(turns[0].evaluation.source, "constexpr int UNROLL = 2;"));
  CHECK(Contains(turns[0].reply, "taken from a similar problem"));
  CHECK(Contains(turns[0].summary, "test/tanh1048576"));
  CHECK(Contains(turns[1].evaluation.source, "constexpr int UNROLL = 4;"));  // then the first values
  const auto again = run(memory.get()), without = run(nullptr);
  for (size_t i = 0; i < 3; ++i) CHECK(again[i].reply == turns[i].reply);
  CHECK(Contains(without[0].evaluation.source, "constexpr int UNROLL = 4;"));
}

TEST_CASE("a memory that is missing, corrupt, newer or another program's is refused by the option's name") {
  Fixture f;
  f.Add({});
  CHECK(OpenError(f.path) == "opened");
  CHECK(OpenError(f.folder / "none.db") ==
        "--memory: " + (f.folder / "none.db").string() + ": no such database");
  CHECK_FALSE(std::filesystem::exists(f.folder / "none.db"));
  std::ofstream(f.folder / "text.db") << std::string(5000, 'k');
  CHECK(Contains(OpenError(f.folder / "text.db"), "not a database"));
  Look(f.path).Execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion + 1).c_str());
  CHECK(OpenError(f.path) == fmt::format("--memory: {}: database is newer (v{}) than this program (v{})",
                                         f.path.string(), kSchemaVersion + 1, kSchemaVersion));
}

}  // namespace kevin
