// Verdicts from the store, and which of them are checked by another measurement.

#include "agent/judge.h"

#include <fmt/format.h>

#include "tests/agent/episode_fixture.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using testing::EpisodeFixture;
using testing::FakeReply;
using testing::FakeSource;

}  // namespace

TEST_CASE("a verdict that is known is repeated, not measured") {
  EpisodeFixture f;
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  f.environment.calls.clear();
  const EpisodeRecord second = f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5 (confirm)"});
  const auto turns = f.store.LoadTurns(second.id);
  const auto earlier = f.store.LoadTurns(first.id);
  CHECK(turns[0].evaluation.cached_from == earlier[0].evaluation.id);
  CHECK(turns[0].evaluation.speedup->value == 1.5);
  CHECK(turns[1].evaluation.outcome == "wrong");
  CHECK(turns[1].feedback.find("judged before") != std::string::npos);
  CHECK(second.best_speedup == 1.5);
}

TEST_CASE("a stored time is not used where it would lack the pairs against the start") {
  EpisodeFixture f;
  f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  f.environment.calls.clear();
  f.options.start_source = FakeSource("measured 1.1");
  f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.1", "// measured 1.5 beside 1.1",
                                                        "// measured 1.5 (confirm) beside 1.1"});
}

TEST_CASE("cached verdicts that are checked again") {
  EpisodeFixture f;
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5")});
  f.options.audit_rates.cached = 1;
  f.environment.calls.clear();
  SECTION("agreement: the verdict is the earlier one, the second measurement is kept beside it") {
    const EpisodeRecord second = f.Run({FakeReply("measured 1.5")});
    CHECK(f.environment.calls.size() == 2);
    const auto evaluations = f.store.LoadEvaluations(second.id, 1);
    REQUIRE(evaluations.size() == 3);
    CHECK_FALSE(evaluations[0].cached_from.empty());
    CHECK(evaluations[1].purpose == "audit");
    CHECK(evaluations[2].purpose == "confirm");
  }
  SECTION("what a busy machine may have caused contradicts nothing if it comes once") {
    f.environment.then["// measured 1.5"] = {"// crash", "// measured 1.4", "// timeout", "// measured 1.4"};
    const EpisodeRecord second = f.Run({FakeReply("measured 1.5")});
    CHECK(f.environment.calls.size() == 4);
    CHECK(second.best_turn == 1);
    CHECK(f.store.LoadEvaluations(first.id, 1)[0].superseded_by.empty());
  }
  SECTION("contradiction: wrong, and the earlier verdict is superseded") {
    f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
    const EpisodeRecord second = f.Run({FakeReply("measured 1.5")});
    CHECK_FALSE(second.best_turn);
    const auto turn = f.store.LoadTurn(second.id, 1);
    CHECK(turn->evaluation.outcome == "wrong");
    CHECK(turn->evaluation.reason.find("non-deterministic: measured before, crashed on new seeds") == 0);
    CHECK(turn->evaluation.cached_from.empty());
    const auto before = f.store.LoadEvaluations(first.id, 1);
    CHECK(before[0].superseded_by == turn->evaluation.id);
  }
}

TEST_CASE("a text that compiles to known machine code gets its verdict") {
  const auto other_text = [](const std::string& comment) {
    return fmt::format("```cpp\n{}// another text\n```\n", FakeSource(comment));
  };
  EpisodeFixture f;
  f.environment.machine_keys = true;
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("wrong"), FakeReply("crash")});
  f.environment.calls.clear();
  SECTION("it is repeated; what a busy machine may have caused is not") {
    const EpisodeRecord second =
        f.Run({other_text("measured 1.5"), other_text("wrong"), other_text("crash")});
    CHECK(f.environment.calls ==
          std::vector<std::string>{"// crash beside 1.5", "// measured 1.5 (confirm)"});
    const auto turns = f.store.LoadTurns(second.id), earlier = f.store.LoadTurns(first.id);
    CHECK(turns[0].evaluation.cached_from == earlier[0].evaluation.id);
    CHECK(turns[0].evaluation.key != earlier[0].evaluation.key);
    CHECK(turns[0].evaluation.speedup->value == 1.5);
    CHECK(turns[1].evaluation.outcome == "wrong");
  }
  SECTION("one that is checked again and contradicts it makes both wrong") {
    f.options.audit_rates.cached = 1;
    f.options.turns = 1;
    f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
    const EpisodeRecord second = f.Run({other_text("measured 1.5")});
    const auto turn = f.store.LoadTurn(second.id, 1);
    CHECK(turn->evaluation.reason.find("non-deterministic: measured before, crashed on new seeds") == 0);
    CHECK(f.store.LoadEvaluations(first.id, 1)[0].superseded_by == turn->evaluation.id);
  }
  SECTION("other machine code is judged") {
    f.options.turns = 1;
    f.Run({FakeReply("measured 1.25")});
    CHECK(f.environment.calls.size() == 2);
  }
}

TEST_CASE("fresh measurements that are made twice") {
  EpisodeFixture f;
  f.options.audit_rates.fresh = 1;
  SECTION("agreement: the first counts, the second is kept beside it") {
    const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
    const auto evaluations = f.store.LoadEvaluations(episode.id, 1);
    REQUIRE(evaluations.size() == 3);
    CHECK(evaluations[0].purpose == "turn");
    CHECK(evaluations[1].purpose == "audit");
  }
  SECTION("contradiction: wrong") {
    f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
    const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
    CHECK(f.store.LoadTurn(episode.id, 1)->evaluation.reason.find("non-deterministic") == 0);
    CHECK_FALSE(episode.best_turn);
  }
  SECTION("what was not measured is not repeated") {
    f.Run({FakeReply("wrong")});
    CHECK(f.environment.calls.size() == 1);
  }
}

TEST_CASE("what a busy machine may have caused is not answered from the store") {
  EpisodeFixture f;
  f.Run({FakeReply("crash")});
  f.environment.calls.clear();
  f.Run({FakeReply("crash")});
  CHECK(f.environment.calls.size() == 1);
}

TEST_CASE("one cached verdict in twenty is checked again") {
  EpisodeFixture f;
  f.Run({FakeReply("wrong")});
  f.environment.calls.clear();
  Judge judge(f.problem, f.environment, f.store, {}, AuditRates{0.05, 0}, 1, nullptr);
  int audits = 0;
  for (int i = 0; i < 1000; ++i) audits += judge.Decide(i, {"cpp", FakeSource("wrong")}).audit ? 1 : 0;
  CHECK(audits == static_cast<int>(f.environment.calls.size()));
  CHECK(audits >= 25);
  CHECK(audits <= 80);
}

}  // namespace kevin
