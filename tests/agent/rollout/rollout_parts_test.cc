// What a rollout is made of: who may work alone, and what it came to.

#include <future>

#include "agent/rollout/exclusive_gate.h"
#include "agent/rollout/rollout_tally.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

template <typename Act>
auto Elsewhere(const Act& act) {
  return std::async(std::launch::async, act).get();
}

TEST_CASE("one works alone, and others wait until it no longer is") {
  Seclusion seclusion;
  const CancelToken drained{true}, open{false};
  REQUIRE(seclusion.Enter(false, open));
  CHECK_FALSE(Elsewhere([&] { return seclusion.Enter(true, open); }));  // somebody works
  seclusion.Leave(false);
  REQUIRE(seclusion.Enter(true, open));
  CHECK_FALSE(Elsewhere([&] { return seclusion.Enter(true, open); }));
  CHECK_FALSE(Elsewhere([&] { return seclusion.Enter(false, drained); }));
  Elsewhere([&] { return seclusion.EndSolitude(), true; });  // only who is alone may say so
  CHECK_FALSE(Elsewhere([&] { return seclusion.Enter(false, drained); }));
  seclusion.EndSolitude();
  CHECK(Elsewhere([&] { return seclusion.Enter(false, drained); }));
  CHECK_FALSE(Elsewhere([&] { return seclusion.Enter(true, open); }));  // two are in
  seclusion.Leave(true), seclusion.Leave(false);
  CHECK(seclusion.Enter(true, open));
}

TEST_CASE("turns add to what was counted last; one that took an earlier verdict held no device") {
  RolloutTally tally;
  CollectionUsage counted;
  counted.turns = 10, counted.completion_tokens = 100, counted.device_s = 5, counted.dollars = 1;
  tally.Recounted(counted, {});
  TurnRecord turn = SampleTurn(1, 1.5);
  turn.usage.prompt_tokens = 7, turn.usage.completion_tokens = 20, turn.cost_usd = 0.25;
  turn.evaluation.cached_from.clear(), turn.evaluation.device_s = 2;
  tally.Add(turn);
  turn.evaluation.cached_from = "another";
  tally.Add(turn);
  const CollectionUsage usage = tally.Usage();
  CHECK(usage.turns == 12);
  CHECK(usage.prompt_tokens == counted.prompt_tokens + 14);
  CHECK(usage.completion_tokens == 140);
  CHECK(usage.device_s == 7);
  CHECK(usage.dollars == 1.5);
  RolloutStatus status;
  tally.FillIn(&status);
  CHECK(status.turns == 2);
  CHECK(status.device_s == 2);
  CHECK(status.usage.turns == 12);
}

}  // namespace
}  // namespace kevin
