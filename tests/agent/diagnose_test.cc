// Which turns are diagnosed, what their policy reads, and that a diagnosis changes no verdict.

#include "agent/episode.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

using testing::FakeReply;
using Comments = std::vector<std::string>;

struct DiagnosedEpisode {
  testing::TempFolder folder;
  Problem problem = testing::ReluProblem();
  testing::FakeEnvironment environment;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  EpisodeOptions options;
  EpisodeRecord episode;

  DiagnosedEpisode() {
    options.run = store.BeginRun({});
    options.output = folder.path() / "out";
    options.audit_rates = {0, 0};
    Diagnosis diagnosis;
    diagnosis.stages = {{"pack", 0.25}, {"multiply", 0.75}};
    environment.diagnosis = diagnosis;
  }

  void Run(DiagnoseTurns turns, const std::vector<std::string>& replies) {
    options.diagnose = turns;
    options.turns = static_cast<int>(replies.size());
    testing::ScriptedPolicy policy(replies);
    CancelToken cancel{false};
    episode = RunEpisode(problem, policy, environment, store, options, {}, &cancel);
  }

  bool IsTold(int turn) {
    return store.LoadTurn(episode.id, turn)->feedback.find("multiply 75 %") != std::string::npos;
  }
};

const std::vector<std::string> kReplies = {FakeReply("wrong"), FakeReply("measured 1.5"),
                                           FakeReply("measured 1.2"), FakeReply("measured 1.8"), "no code"};

}  // namespace

TEST_CASE("turns that lead are diagnosed, and their feedback says what was found") {
  DiagnosedEpisode e;
  e.Run(DiagnoseTurns::kBest, kReplies);
  CHECK(e.environment.diagnosed == Comments{"// measured 1.5 at small", "// measured 1.8 at small"});
  CHECK((!e.IsTold(1) && e.IsTold(2) && !e.IsTold(3) && e.IsTold(4)));
  CHECK(e.episode.best_turn == 4);
}

TEST_CASE("all correct turns, or none") {
  DiagnosedEpisode all;
  all.Run(DiagnoseTurns::kAll, kReplies);
  CHECK((all.environment.diagnosed.size() == 3 && all.IsTold(3) && !all.IsTold(5)));
  DiagnosedEpisode none;
  none.Run(DiagnoseTurns::kOff, kReplies);
  CHECK((none.environment.diagnosed.empty() && !none.IsTold(4)));
  CHECK(none.episode.best_speedup == all.episode.best_speedup);
}

TEST_CASE("the last turn is not diagnosed where no reply follows") {
  DiagnosedEpisode e;
  e.options.diagnose_last = false;
  e.Run(DiagnoseTurns::kAll, {FakeReply("measured 1.5"), FakeReply("measured 1.8")});
  CHECK(e.environment.diagnosed == Comments{"// measured 1.5 at small"});
  CHECK((e.IsTold(1) && !e.IsTold(2)));
}

TEST_CASE("a diagnosis that fails leaves the verdict as it is") {
  DiagnosedEpisode e;
  e.environment.diagnosis_fails = true;
  e.Run(DiagnoseTurns::kBest, kReplies);
  CHECK((e.episode.state == EpisodeState::kDone && e.episode.correct_turns == 3 && !e.IsTold(2)));
}

TEST_CASE("the names of --diagnose") {
  CHECK(DiagnoseTurnsNamed("off") == DiagnoseTurns::kOff);
  CHECK(DiagnoseTurnsNamed("best") == DiagnoseTurns::kBest);
  CHECK(DiagnoseTurnsNamed("all") == DiagnoseTurns::kAll);
}

}  // namespace kevin
