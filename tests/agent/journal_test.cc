#include "agent/journal.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

// Confirms with the given speed-ups, one after the other per turn; 0 is "no longer correct". Against another turn the
// ratio is that of the two latest values.
struct Confirmations {
  std::map<int, std::vector<double>> values;
  std::vector<int> order;                       // the ranking; a turn that is no longer correct leaves it
  std::vector<std::pair<int, int>> asked = {};  // turn, against (0: none)
  std::map<int, double> latest = {};

  std::optional<Winner> Run() {
    return ConfirmWinner([this] { return order; },
                         [this](int turn, std::optional<int> against) { return Confirm(turn, against); });
  }

  std::optional<Confirmed> Confirm(int turn, std::optional<int> against) {
    asked.emplace_back(turn, against.value_or(0));
    auto& left = values.at(turn);
    const double value = left.front();
    left.erase(left.begin());
    if (value == 0) {
      std::erase(order, turn);
      return std::nullopt;
    }
    latest[turn] = value;
    if (against && latest.count(*against) == 0) latest[*against] = values.at(*against).front();
    Confirmed confirmed{Ratio{value, value * 0.99, value * 1.01, 0.004, 30, 3}, std::nullopt};
    if (against) confirmed.against = Ratio{value / latest.at(*against), 0, 0, 0, 0, 0};
    return confirmed;
  }
};

using Asked = std::vector<std::pair<int, int>>;

}  // namespace

TEST_CASE("a leader without challengers is confirmed once") {
  Confirmations confirm{{{2, {1.45}}}, {2}};
  const auto winner = confirm.Run();
  REQUIRE(winner);
  CHECK((winner->turn == 2 && winner->speedup.value == 1.45));
  CHECK(confirm.asked == Asked{{2, 0}});
}

TEST_CASE("a challenger is measured against the leader; only the best is measured once more") {
  Confirmations faster{{{2, {1.3}}, {3, {1.38, 1.37}}}, {2, 3}};
  auto winner = faster.Run();
  REQUIRE(winner);
  CHECK((winner->turn == 3 && winner->speedup.value == 1.37));
  CHECK(faster.asked == Asked{{3, 2}, {3, 0}});
  Confirmations slower{{{2, {1.41}}, {3, {1.38}}}, {2, 3}};
  winner = slower.Run();
  REQUIRE(winner);
  CHECK((winner->turn == 2 && winner->speedup.value == 1.41));
  CHECK(slower.asked == Asked{{3, 2}, {2, 0}});
}

TEST_CASE("at most three are compared, each against the best so far") {
  Confirmations confirm;
  for (int turn = 1; turn <= 8; ++turn) {
    confirm.order.push_back(turn);
    confirm.values[turn] = {1.0 + 0.01 * turn, 1.0};
  }
  const auto winner = confirm.Run();
  REQUIRE(winner);
  CHECK(winner->turn == 3);
  CHECK(confirm.asked == Asked{{2, 1}, {3, 2}, {3, 0}});
}

TEST_CASE("candidates that are no longer correct drop out") {
  Confirmations leader{{{2, {0}}, {3, {1.35, 1.36}}}, {2, 3}};
  leader.latest[2] = 1.4;
  CHECK(leader.Run()->turn == 3);
  CHECK(leader.asked == Asked{{3, 2}, {2, 0}, {3, 0}});
  Confirmations late{{{2, {1.1}}, {3, {1.38, 0}}, {1, {1.15, 1.16, 1.17}}}, {2, 3, 1}};
  const auto winner =
      late.Run();  // 3 is the best of three, and then incorrect: from the beginning without it
  REQUIRE(winner);
  CHECK((winner->turn == 1 && winner->speedup.value == 1.17));
  CHECK(late.asked == Asked{{3, 2}, {1, 3}, {3, 0}, {1, 2}, {1, 0}});
  Confirmations none{{{1, {0}}, {2, {0}}, {3, {0}}}, {1, 2, 3}};
  CHECK_FALSE(none.Run());
  CHECK(none.asked.size() == 3);
  Confirmations empty;
  CHECK_FALSE(empty.Run());
}

TEST_CASE(
    "a verdict that overrules others brings the feedback on it to all of their turns, also after a resume") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const auto feedback = [](const TurnRecord& turn, const EvaluationRecord& verdict) {
    return std::to_string(turn.turn) + " is " + verdict.outcome;
  };
  Journal journal(store, EpisodeOutput(folder / "out"), feedback);
  journal.Begin(SampleEpisode(store.BeginRun(SampleRun())), SampleProblem());
  journal.Append(SampleTurn(1, 1.5), {}, nullptr);
  TurnRecord repeated = SampleTurn(2, 1.5);
  repeated.evaluation = SampleTurn(1, 1.5).evaluation;
  repeated.evaluation.cached_from = journal.turn(1).evaluation.id;
  journal.Append(repeated, {}, nullptr);
  journal.Append(SampleTurn(3, 1.2), {}, nullptr);
  EvaluationRecord wrong = journal.turn(1).evaluation;
  wrong.purpose = "audit", wrong.outcome = "wrong", wrong.correct = false, wrong.speedup.reset();
  journal.AppendEvaluation(1, wrong);
  CHECK(journal.turn(1).feedback == "1 is wrong");
  CHECK(journal.turn(2).feedback == "2 is wrong");
  CHECK(journal.turn(3).feedback == SampleTurn(3, 1.2).feedback);

  Journal resumed(store, EpisodeOutput(folder / "out"), feedback);
  resumed.Resume(journal.episode().id, store.BeginRun(SampleRun()), 1);
  for (int turn = 1; turn <= 3; ++turn) CHECK(resumed.turn(turn).feedback == journal.turn(turn).feedback);
}

TEST_CASE("a later verdict replaces a turn's own; the turn keeps its text") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const std::string first = BeginSample(store), second = BeginSample(store);
  const TurnRecord turn = SampleTurn(1, 1.5);
  const std::string verdict = store.AppendTurn(first, turn);
  TurnRecord other = SampleTurn(1, 1.5);  // another text with the same machine code
  other.evaluation.source = "another text", other.evaluation.candidate_hash = ContentHash("another text");
  other.evaluation.outcome = "wrong", other.evaluation.correct = false, other.evaluation.speedup.reset();
  store.AppendTurn(second, other, {verdict});
  const EvaluationRecord now = CurrentTurns(store, first).at(0).evaluation;
  CHECK((now.outcome == "wrong" && !now.correct && !now.speedup));
  CHECK(now.source == turn.evaluation.source);
  CHECK(now.candidate_hash == turn.evaluation.candidate_hash);
}

TEST_CASE("an episode's id and a kind of another database name no file outside the folder of output") {
  namespace fs = std::filesystem;
  const fs::path top = fs::temp_directory_path() / ("kevin-journal-" + std::to_string(getpid()));
  const fs::path folder = top / "a/b/out";
  EpisodeOutput output(folder);
  for (const char* episode : {"../../../x", "/etc", "..", ".", "", "a/b", "ordinary"}) {
    output.set_episode(episode);
    for (const char* kind : {"cpp", "/../../../y", "..", "cpp\n"}) {
      const fs::path turn = output.WriteTurn(1, kind, "kernel"), best = output.WriteBest(kind, "kernel");
      INFO(turn.string() << " " << best.string());
      CHECK(fs::canonical(turn).parent_path().parent_path() == fs::canonical(folder));
      CHECK(fs::canonical(best).parent_path().parent_path() == fs::canonical(folder));
    }
  }
  CHECK(output.WriteTurn(1, "cuda", "kernel") == (folder / "ordinary/1.cu").string());
  fs::remove_all(top);
}

}  // namespace kevin
