// `kevin db rejudge`: order, what is superseded, resumption, errors, and the best kernel of an episode.

#include "agent/rejudge.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/episode.h"
#include "env/error.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

using testing::FakeReply;
using testing::FakeSource;

// A database of episodes that a program of rules version 1 made, and the environment of today.
struct Fixture {
  testing::TempFolder folder;
  Problem problem = testing::ReluProblem();
  testing::FakeEnvironment older, today;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  RejudgeRequest request;
  RejudgeHooks hooks;
  std::vector<std::string> errors;
  RejudgePlan plan;
  bool is_missing = false;
  CancelToken drain{false};

  Fixture() {
    older.rules_version = 1;
    hooks.on_plan = [this](const RejudgePlan& made) { plan = made; };
    hooks.on_error = [this](const DoubtfulVerdict&, const std::string& error) { errors.push_back(error); };
  }

  EpisodeRecord Episode(testing::FakeEnvironment& environment, const std::vector<std::string>& comments) {
    std::vector<std::string> replies;
    for (const std::string& comment : comments) replies.push_back(FakeReply(comment));
    testing::ScriptedPolicy policy(replies);
    EpisodeOptions options;
    options.run = store.BeginRun({});
    options.output = folder.path() / "out";
    options.turns = static_cast<int>(comments.size());
    options.audit_rates = {0, 0};
    return RunEpisode(problem, policy, environment, store, options, {}, nullptr);
  }

  RejudgeEnd Run() { return Run(store); }
  RejudgeEnd Run(Store& database) {
    today.calls.clear();
    const ProblemFinder find = [this](const std::string&, const std::string&,
                                      std::string* why_not) -> std::optional<Problem> {
      if (!is_missing) return problem;
      *why_not = "not installed";
      return std::nullopt;
    };
    return RunRejudge(database, today, find, request, hooks, &drain, nullptr);
  }

  EvaluationRecord Standing(const EpisodeRecord& episode, int turn) {
    const EvaluationRecord own = store.LoadTurn(episode.id, turn)->evaluation;
    return own.superseded_by.empty() ? own : *store.FindEvaluation(own.superseded_by);
  }
};

using Calls = std::vector<std::string>;

TEST_CASE("rejudge: the winner first and confirmed anew, then what else was measured; failures are left") {
  Fixture f;
  const EpisodeRecord episode = f.Episode(f.older, {"measured 1.5", "wrong", "measured 2.5"});
  REQUIRE(episode.best_speedup == 2.5);
  std::vector<std::string> order;
  f.hooks.on_verdict = [&](const Rejudgement& done) {
    CHECK(f.store.LoadTurn(episode.id, done.before.turn)->evaluation.superseded_by == done.now.id);  // stored
    order.push_back(fmt::format("{} turn {}", done.number, done.before.turn));
  };
  f.today.then["// measured 2.5"] = {"// measured 2.25"};  // its confirmation
  const RejudgeEnd end = f.Run();
  CHECK(order == std::vector<std::string>{"1 turn 3", "2 turn 1"});
  CHECK(f.today.calls == Calls{"// measured 2.5", "// measured 2.5 (confirm)", "// measured 1.5"});
  CHECK((end.judged == 2 && end.contradictions == 0 && end.confirmed == 1 && end.errors == 0));
  CHECK((f.plan.failures == 1 && f.plan.verdicts.size() == 2));
  CHECK(f.store.FindEpisode(episode.id).best_speedup == 2.25);
  CHECK(f.Standing(episode, 3).rules_version == kRulesVersion);
  CHECK(f.Standing(episode, 3).purpose == "rejudge");
  CHECK(f.store.LoadEvaluations(episode.id, 3).size() ==
        4);  // the old verdict and its confirmation, and the new ones

  Figures figures = f.store.LoadFigures();
  CHECK(LeaveOutDoubtful(LeaveOut::kEpisodes, {}, &figures).old == 0);
  CHECK((figures.episodes.size() == 1 && figures.episodes[0].best_speedup == 2.25));

  CHECK(f.Run().judged == 0);  // nothing is left
  CHECK(f.today.calls.empty());
  f.request.failures = true;
  CHECK(f.Run().judged == 1);
  CHECK(f.today.calls == Calls{"// wrong"});
}

TEST_CASE("rejudge: a kernel that only seemed fast is a contradiction, and the next one is the best") {
  Fixture f;
  const EpisodeRecord episode = f.Episode(f.older, {"measured 15", "measured 1.5"});
  REQUIRE((episode.best_turn == 1 && episode.best_speedup == 15));
  f.today.Evaluate(f.problem, {"cpp", FakeSource("measured 15")}, {});
  f.today.then["// measured 15"] = {"// refused"};  // when it is judged the next time
  std::vector<double> before;
  f.hooks.on_verdict = [&](const Rejudgement& done) {
    if (done.contradicts) before.push_back(done.before.speedup);
  };
  const RejudgeEnd end = f.Run();
  CHECK((end.judged == 2 && end.contradictions == 1 && end.confirmed == 1));
  CHECK(before == std::vector<double>{15});
  CHECK(f.Standing(episode, 1).outcome == "refused");
  const EpisodeRecord now = f.store.FindEpisode(episode.id);
  CHECK((now.best_turn == 2 && now.best_speedup == 1.5 && now.state == EpisodeState::kDone));
  CHECK(now.best_path == f.store.LoadTurn(episode.id, 2)->source_path);
  CHECK(now.seconds == episode.seconds);
}

TEST_CASE("rejudge: without a correct kernel the episode has no best any more") {
  Fixture f;
  const EpisodeRecord episode = f.Episode(f.older, {"measured 15"});
  f.today.at_size["small"] = "wrong";
  const RejudgeEnd end = f.Run();
  CHECK((end.judged == 1 && end.contradictions == 1 && end.confirmed == 0 && end.without_best == 1));
  const EpisodeRecord now = f.store.FindEpisode(episode.id);
  CHECK((!now.best_turn && !now.best_speedup && now.best_path.empty()));
}

TEST_CASE("rejudge: killed at any point, the next start does the rest and nothing twice") {
  for (int killed_at = 1; killed_at <= 5; ++killed_at) {
    Fixture f;
    const EpisodeRecord first = f.Episode(f.older, {"measured 1.5", "measured 2.5"});
    const EpisodeRecord second = f.Episode(f.older, {"measured 1.2"});
    const std::filesystem::path path = f.store.path();
    f.store = Store::Open(f.folder.path() / "other.db", OpenMode::kCreate);  // no connection crosses the fork
    const pid_t child = fork();
    if (child == 0) {
      Store store = Store::Open(path, OpenMode::kWrite);
      f.today.before_evaluate = [&](int call) {
        if (call == killed_at) kill(getpid(), SIGKILL);
      };
      f.Run(store);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    f.store = Store::Open(path, OpenMode::kWrite);
    const RejudgeEnd end = f.Run();
    CHECK(static_cast<int>(f.today.calls.size()) ==
          5 - (killed_at - 1));  // three candidates, two confirmations
    CHECK((end.contradictions == 0 && end.errors == 0));
    CHECK((f.store.DoubtfulVerdicts().empty() && f.store.EpisodesToConfirm().empty()));
    for (const EpisodeRecord& e : {first, second}) {
      CHECK(f.Standing(e, 1).rules_version == kRulesVersion);
      CHECK(f.store.LoadEvaluations(e.id, *e.best_turn).size() == 4);
    }
  }
}

TEST_CASE("rejudge: --limit, --problem, an interrupt, and another device leave the rest for later") {
  Fixture f;
  f.Episode(f.older, {"measured 1.5", "measured 2.5", "measured 1.2"});
  f.request.problems = {"level9/", "level1/1"};
  CHECK((f.Run().judged == 0 && f.plan.verdicts.empty()));
  f.request.problems = {f.problem.id};
  f.request.limit = 1;
  CHECK((f.Run().judged == 1 && f.plan.left == 2));
  f.request.problems = {f.problem.id.substr(0, f.problem.id.find('/') + 1)};
  f.request.limit = 0;
  f.hooks.on_verdict = [&](const Rejudgement&) { f.drain = true; };
  CHECK((f.Run().is_interrupted && f.store.DoubtfulVerdicts().size() == 1));
  f.drain = false;
  f.today.facts.device = "cpu: other, 2 threads";
  CHECK((f.Run().judged == 0 && f.plan.elsewhere["cpu: fake, 2 threads"] == 1));
}

TEST_CASE("rejudge: a problem that is missing is named; the others are judged") {
  Fixture f;
  f.Episode(f.older, {"measured 1.5"});
  f.is_missing = true;
  const RejudgeEnd end = f.Run();
  CHECK((end.judged == 0 && end.errors == 0 && f.plan.without_problem == 1));
  CHECK(f.plan.missing == std::map<std::string, std::string>{{f.problem.id, "not installed"}});
  CHECK(f.store.DoubtfulVerdicts().size() == 1);
}

TEST_CASE("rejudge: an error of the environment leaves the row; three in a row end it") {
  Fixture f;
  f.Episode(f.older, {"measured 1.5", "measured 1.4", "measured 1.3", "measured 1.2"});
  int calls = 0;
  f.today.before_evaluate = [&](int) {
    // The first candidate fails twice: its evaluation is tried once more before the candidate is left.
    if (++calls <= 2) throw Error(ExitCode::kBroken, "evaluator: ended by signal 9");
  };
  RejudgeEnd end = f.Run();
  CHECK((end.judged == 3 && end.errors == 1));
  CHECK(f.errors == std::vector<std::string>{"evaluator: ended by signal 9"});
  CHECK(f.store.DoubtfulVerdicts().size() == 1);
  CHECK(f.store.DoubtfulVerdicts()[0].speedup == 1.5);
  CHECK_FALSE(f.store.EpisodesToConfirm().empty());  // its best turn still has the old verdict
  f.today.before_evaluate = nullptr;
  CHECK((f.Run().judged == 1 && f.store.EpisodesToConfirm().empty()));

  Fixture broken;
  broken.Episode(broken.older, {"measured 1.5", "measured 1.4", "measured 1.3", "measured 1.2"});
  broken.today.before_evaluate = [](int) { throw Error(ExitCode::kBroken, "no device"); };
  CHECK(broken.Run().failure == "no device");
  CHECK(broken.errors.size() == kMostErrorsInARow);
  CHECK(broken.store.DoubtfulVerdicts().size() == 4);
}

TEST_CASE("rejudge: a text that took over a verdict by its machine code is judged by itself") {
  Fixture f;
  f.older.machine_keys = true;
  const EpisodeRecord honest = f.Episode(f.older, {"measured 1.5"});
  const std::string same_code = "```cpp\n" + FakeSource("measured 1.5") + "// another text\n```\n";
  testing::ScriptedPolicy policy({same_code});
  EpisodeOptions options;
  options.run = f.store.BeginRun({});
  options.output = f.folder.path() / "out";
  options.turns = 1, options.audit_rates = {0, 0};
  const EpisodeRecord other = RunEpisode(f.problem, policy, f.older, f.store, options, {}, nullptr);
  REQUIRE_FALSE(f.store.LoadTurn(other.id, 1)->evaluation.cached_from.empty());
  CHECK(f.Run().judged == 2);  // by the machine keys of today they are two kernels
  CHECK(f.Standing(honest, 1).candidate_hash != f.Standing(other, 1).candidate_hash);
  CHECK(f.Standing(other, 1).rules_version == kRulesVersion);
}

TEST_CASE("rejudge: a verdict of today answers for the old one without another evaluation") {
  Fixture f;
  const EpisodeRecord old = f.Episode(f.older, {"measured 1.5"});
  const EpisodeRecord fresh = f.Episode(f.today, {"measured 1.5"});
  CHECK(f.today.calls ==
        Calls{"// measured 1.5", "// measured 1.5 (confirm)"});  // not answered from the old one
  CHECK(f.store.LoadTurn(fresh.id, 1)->evaluation.cached_from.empty());
  CHECK(f.Run().judged == 1);
  CHECK(f.today.calls == Calls{"// measured 1.5 (confirm)"});
  CHECK(f.Standing(old, 1).cached_from == f.store.LoadTurn(fresh.id, 1)->evaluation.id);
}

TEST_CASE("a time that was taken while another process used the GPU answers for no other candidate") {
  Fixture f;
  const EpisodeRecord episode = f.Episode(f.today, {"measured 1.5"});
  f.today.calls.clear();
  f.store.LoadTurn(episode.id, 1);
  EvaluationRecord shared = f.store.LoadTurn(episode.id, 1)->evaluation;
  shared.purpose = "rejudge", shared.shared_gpu = true;
  f.store.AppendRejudgement(episode.id, 1, shared, "none");
  const EpisodeRecord next = f.Episode(f.today, {"measured 1.5"});
  CHECK(f.store.LoadTurn(next.id, 1)->evaluation.cached_from.empty());
}

}  // namespace
}  // namespace kevin
