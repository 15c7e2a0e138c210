// The end of a run's summary: the best turn, and the pairs that decided.

#include "tools/run_text.h"

#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

// An episode whose turn 1 is 1.5 times as fast as eager; later turns are compared with it in the same pairs.
struct Finished {
  TemporaryFolder folder;
  Store store = Store::Open((folder / "kevin.db").string(), OpenMode::kCreate);
  std::string episode = BeginSample(store);
  int turns = 0;

  Finished() { Turn(1.5); }

  void Turn(double speedup, std::optional<Ratio> against_first = {}) {
    TurnRecord turn = SampleTurn(++turns, speedup);
    turn.evaluation.speedup = Ratio{speedup, speedup * 0.95, speedup * 1.05};
    turn.evaluation.against_best = against_first;
    turn.evaluation.against_best_turn = against_first ? std::optional(1) : std::nullopt;
    turn.evaluation.cached_from.clear();
    store.AppendTurn(episode, turn);
  }
  void Confirm(int turn, double speedup, std::optional<Ratio> against = {}, int other = 1) {
    EvaluationRecord again = SampleEvaluation("kernel " + std::to_string(turn), speedup);
    again.purpose = "confirm";
    again.speedup = Ratio{speedup, speedup * 0.95, speedup * 1.05};
    again.against_best = against;
    again.against_best_turn = against ? std::optional(other) : std::nullopt;
    store.AppendEvaluation(episode, turn, again);
  }
  std::string Best(int turn, double speedup) {
    store.FinishEpisode(episode, {EpisodeState::kDone, "", turn, speedup, speedup * 0.95, speedup * 1.05,
                                  "out/best.cpp", 12.5});
    return BestText(store, store.FindEpisode(episode), std::nullopt);
  }
};

}  // namespace

TEST_CASE("the summary of a run names the pairs that decided") {
  Finished run;
  run.Turn(1.8, Ratio{0.95, 0.93, 0.97});  // eager was slow at that time
  run.Turn(1.4, Ratio{1.1, 1.08, 1.12});   // the lead
  run.Turn(1.3, Ratio{0.9, 0.88, 0.92});
  run.Confirm(3, 1.6);
  CHECK(run.Best(3, 1.6) ==
        "best      turn 3 with 1.6x (1.52x to 1.68x), measured again\n"
        "          turn 2 read 1.8x and is 0.864x (0.84x to 0.888x) against turn 3 by pairs: slower\n"
        "          turn 3 in the same pairs as turn 1: 1.1x (1.08x to 1.12x), faster\n");
}

TEST_CASE("turns that were measured again: their pairs, and those of the best") {
  Finished run;
  run.Turn(1.6, Ratio{1.01, 0.97, 1.05});
  run.Confirm(1, 1.55);
  run.Confirm(2, 1.7, Ratio{1.08, 1.03, 1.13});
  CHECK(run.Best(2, 1.7) ==
        "best      turn 2 with 1.7x (1.61x to 1.78x), measured again\n"
        "          turn 1 was 1.5x and is 1.55x when measured again\n"
        "          turn 2 in the same pairs as turn 1: 1.08x (1.03x to 1.13x), faster\n");
  Finished other;
  other.Turn(1.6, Ratio{1.01, 0.97, 1.05});
  other.Confirm(1, 1.55);
  other.Confirm(2, 1.7, Ratio{0.96, 0.93, 0.99});
  CHECK(
      other.Best(1, 1.55) ==
      "best      turn 1 with 1.55x (1.47x to 1.63x), measured again\n"
      "          turn 2 was 1.6x and is 1.7x when measured again; in the same pairs as turn 1: 0.96x (0.93x to "
      "0.99x), slower\n");
}

TEST_CASE("a higher reading without common pairs is said to be one") {
  Finished run;
  run.Turn(1.8);
  run.Confirm(1, 1.55);
  CHECK(run.Best(1, 1.55).find(
            "          turn 2 read 1.8x, at another time than the best and not in the same pairs\n") !=
        std::string::npos);
}

}  // namespace kevin
