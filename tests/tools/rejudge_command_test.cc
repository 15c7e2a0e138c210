// `kevin db rejudge` with the CPU's evaluator, on a database that an older program left: a correct kernel and one that
// only seemed to be.

#include "env/outcome.h"
#include "tests/catch.h"
#include "tests/tools/command_line.h"
#include "tests/trajectories/sample_records.h"
#include "tools/device_options.h"

namespace kevin {
namespace {

constexpr char kCorrect[] =
    "extern \"C\" void launch(const float* x, float* out) {\n"
    "  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;\n}\n";
constexpr char kEmpty[] = "extern \"C\" void launch(const float* x, float* out) {}\n";

Result Run(std::vector<std::string> arguments) {
  return RunCommand({&AddReportCommand, &AddDbCommand}, std::move(arguments));
}

std::string DeviceOfThisMachine() {
  DeviceOptions options;
  options.device = "cpu";
  return MakeEnvironment(EnvironmentOptionsFor(options, "cpu"))->Facts().device;
}

TurnRecord Turn(int number, const std::string& source, double speedup, const std::string& device) {
  TurnRecord t = SampleTurn(number, speedup);
  t.evaluation.source = source, t.evaluation.candidate_hash = ContentHash("cpp\n" + source);
  t.evaluation.key = ContentHash("older " + source);
  t.evaluation.rules_version = 1;
  t.evaluation.device = device, t.evaluation.workload.tf32 = false;
  t.evaluation.problem_hash = ProblemSet().Find("level1/19").content_hash;
  return t;
}

}  // namespace

TEST_CASE("an older database is judged again: the correct kernel stays, the false winner falls") {
  const TemporaryFolder folder;
  const std::string database = (folder / "kevin.db").string(), device = DeviceOfThisMachine();
  const Problem problem = ProblemSet().Find("level1/19");
  std::string id;
  {
    Store store = Store::Open(database, OpenMode::kCreate);
    EpisodeRecord episode = SampleEpisode(store.BeginRun(SampleRun()));
    episode.problem_hash = problem.content_hash, episode.device = device;
    episode.start_source.clear(), episode.workload.tf32 = false;
    ProblemRecord record = SampleProblem();
    record.content_hash = problem.content_hash, record.text = problem.text;
    id = store.BeginEpisode(episode, record);
    store.AppendTurn(id, Turn(1, kCorrect, 1.1, device));
    store.AppendTurn(id, Turn(2, kEmpty, 40, device));
    EvaluationRecord confirm = Turn(2, kEmpty, 39, device).evaluation;
    confirm.purpose = "confirm";
    store.AppendEvaluation(id, 2, confirm);
    store.FinishEpisode(id, {EpisodeState::kDone, "", 2, 39, 38, 40, "best.cpp", 1});
  }
  CHECK(Contains(Run({"report", "--db", database}).error, "2 verdicts were left out"));

  const Result first = Run({"db", "rejudge", database, "--device", "cpu", "--limit", "1", "--json"});
  REQUIRE(first.code == 0);
  const auto lines = Lines(first.output);
  REQUIRE(lines.size() == 2);
  CHECK((lines[0]["event"] == "rejudgement" && lines[0]["turn"] == 2 && lines[0]["speedup_before"] == 40));
  CHECK((lines[0]["contradiction"] == true && lines[0]["correct"] == false &&
         lines[0]["rules_version"] == kRulesVersion));
  CHECK((lines[1]["event"] == "rejudge" && lines[1]["contradictions"] == 1 && lines[1]["remaining"] == 1));

  const Result second = Run({"db", "rejudge", "--db", database, "--device", "cpu"});
  CHECK(second.code == 0);
  CHECK(
      Contains(second.output, "1 candidates judged again, 0 contradictions; best kernels: 1 confirmed anew"));
  Store store = Store::Open(database, OpenMode::kRead);
  const EpisodeRecord now = store.FindEpisode(id);
  CHECK((now.best_turn == 1 && now.correct_turns == 1 && *now.best_speedup < 39));
  CHECK(Run({"report", "--db", database}).code == 0);
}

}  // namespace kevin
