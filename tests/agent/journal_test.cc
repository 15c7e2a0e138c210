#include "agent/journal.h"

#include <unistd.h>

#include <filesystem>
#include <map>

#include "tests/catch.h"

namespace kevin {
namespace {

// Confirms with the given values, one after the other per turn; a value of 0 is "no longer correct".
struct Confirmations {
  std::map<int, std::vector<double>> values;
  std::vector<int> asked;

  ConfirmTurn Function() {
    return [this](int turn) -> std::optional<Ratio> {
      asked.push_back(turn);
      auto& left = values.at(turn);
      const double value = left.front();
      left.erase(left.begin());
      if (value == 0) return std::nullopt;
      return Ratio{value, value * 0.99, value * 1.01, 0.004, 30, 3};
    };
  }
};

std::vector<CorrectTurn> Three() { return {{1, "a", 1.2}, {2, "b", 1.5}, {3, "c", 1.4}}; }

}  // namespace

TEST_CASE("a leader that holds is confirmed once") {
  Confirmations confirm{{{2, {1.45}}}, {}};
  const auto winner = ConfirmWinner(Three(), confirm.Function());
  REQUIRE(winner);
  CHECK(winner->turn == 2);
  CHECK(winner->speedup.value == 1.45);
  CHECK(confirm.asked == std::vector<int>{2});
}

TEST_CASE("a leader that falls behind the second: both are confirmed, the better one once more") {
  Confirmations confirm{{{2, {1.1}}, {3, {1.38, 1.37}}}, {}};
  const auto winner = ConfirmWinner(Three(), confirm.Function());
  REQUIRE(winner);
  CHECK(winner->turn == 3);
  CHECK(winner->speedup.value == 1.37);
  CHECK(confirm.asked == std::vector<int>{2, 3, 3});
}

TEST_CASE("at most three are confirmed") {
  std::vector<CorrectTurn> many;
  Confirmations confirm;
  for (int turn = 1; turn <= 8; ++turn) {
    many.push_back({turn, std::to_string(turn), 2.0 - 0.01 * turn});
    confirm.values[turn] = {1.0 + 0.01 * turn, 1.0};
  }
  const auto winner = ConfirmWinner(many, confirm.Function());
  REQUIRE(winner);
  CHECK(winner->turn == 3);
  CHECK(confirm.asked == std::vector<int>{1, 2, 3, 3});
}

TEST_CASE("candidates that are no longer correct drop out") {
  Confirmations confirm{{{2, {0}}, {3, {1.35}}}, {}};
  CHECK(ConfirmWinner(Three(), confirm.Function())->turn == 3);
  Confirmations late{{{2, {1.1}}, {3, {1.38, 0}}, {1, {1.15}}}, {}};
  late.values[2].push_back(1.12);
  late.values[2].push_back(1.11);
  late.values[1].push_back(1.16);
  const auto winner = ConfirmWinner(Three(), late.Function());
  REQUIRE(winner);
  CHECK(winner->turn == 1);
  CHECK(winner->speedup.value == 1.16);
  Confirmations none{{{1, {0}}, {2, {0}}, {3, {0}}}, {}};
  CHECK_FALSE(ConfirmWinner(Three(), none.Function()));
  CHECK_FALSE(ConfirmWinner({}, none.Function()));
}

TEST_CASE("equal candidates are one candidate") {
  Confirmations confirm{{{1, {0}}}, {}};
  CHECK_FALSE(ConfirmWinner({{1, "same", 1.3}, {2, "same", 1.2}}, confirm.Function()));
  CHECK(confirm.asked == std::vector<int>{1});
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
