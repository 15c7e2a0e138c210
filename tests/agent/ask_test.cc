// Requests to a policy that reports them, has a budget, and rejects long prompts.

#include "agent/ask.h"

#include <set>

#include "agent/episode.h"
#include "env/error.h"
#include "tests/agent/episode_fixture.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using testing::EpisodeFixture;
using testing::FakeReply;

// Reports requests as a remote policy does: one that fails, one that answers, and then what `end` says.
class PayingPolicy : public testing::ScriptedPolicy {
 public:
  using ScriptedPolicy::ScriptedPolicy;
  std::function<void(const Request&)> before;

  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    if (before) before(request);
    RequestAttempt attempt;
    attempt.provider = "openai";
    attempt.url = "http://127.0.0.1/v1/chat/completions";
    attempt.request = "{\"turn\":" + std::to_string(request.task.turn) + "}";
    attempt.outcome = "sent";
    request.on_attempt(attempt);
    attempt.outcome = "failed";
    attempt.status = 529;
    attempt.error = "HTTP 529";
    attempt.cost_usd = 0;
    request.on_attempt(attempt);
    attempt.number = 2;
    attempt.outcome = "sent";
    attempt.status = {};
    attempt.error = "";
    attempt.cost_usd = {};
    request.on_attempt(attempt);
    Completion completion = ScriptedPolicy::Complete(request, cancel, on_text);
    completion.usage = {1000, 100, 50, 10, 5};
    completion.cost_usd = 0.25;
    attempt.outcome = "answered";
    attempt.status = 200;
    attempt.seconds = 1.5;
    attempt.usage = completion.usage;
    attempt.cost_usd = 0.25;
    attempt.response = "data: [DONE]\n\n";
    request.on_attempt(attempt);
    return completion;
  }
};

}  // namespace

TEST_CASE("every request of a policy is stored with its turn, also those of a turn that fails") {
  EpisodeFixture f;
  PayingPolicy policy({FakeReply("measured 1.5"), FakeReply("wrong")});
  f.options.turns = 3;
  std::string episode;
  std::vector<int> seen;
  f.hooks.on_begin = [&](const EpisodeRecord& record) { episode = record.id; };
  f.hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord&) { seen.push_back(turn.requests); };
  CHECK_THROWS_AS(RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel),
                  Error);
  CHECK(seen == std::vector<int>{2, 2});
  const auto requests = f.store.LoadRequests(episode, 1);
  REQUIRE(requests.size() == 2);
  CHECK((requests[0].attempt == 1 && requests[0].outcome == "failed" && requests[0].status == 529));
  CHECK((requests[1].attempt == 2 && requests[1].outcome == "answered" && requests[1].cost_usd == 0.25));
  CHECK((requests[1].usage.prompt_tokens == 1000 && requests[1].cache_write_tokens == 5));
  CHECK(requests[1].request == "{\"turn\":1}");
  CHECK(requests[1].response == "data: [DONE]\n\n");
  const auto turn = f.store.LoadTurn(episode, 1);
  CHECK((turn->requests == 2 && turn->cost_usd == 0.25));
  // The third turn has no answer; its request under way stays as it was left.
  REQUIRE(f.store.LoadRequests(episode, 3).size() == 2);
  CHECK(f.store.LoadRequests(episode, 3)[1].outcome == "sent");
  const EpisodeRecord record = f.store.FindEpisode(episode);
  CHECK(record.state == EpisodeState::kFailed);
  CHECK((record.turns == 2 && record.requests == 6));
  CHECK_FALSE(record.cost_usd);  // nobody knows what the last one cost
}

TEST_CASE("each turn draws with a seed of its own, that of the first is the episode's") {
  EpisodeFixture f;
  f.options.seed = 7;
  f.Run({"no code", "no code", "no code"});
  REQUIRE(f.requests.size() == 3);
  CHECK(f.requests[0].sampling.seed == 7);
  CHECK(f.requests[1].sampling.seed == TurnSeed(7, 2));
  CHECK(std::set<uint64_t>{7, TurnSeed(7, 2), TurnSeed(7, 3), TurnSeed(8, 2)}.size() == 4);
}

TEST_CASE("a budget that is reached ends the episode well: the winner is confirmed") {
  EpisodeFixture f;
  PayingPolicy policy({FakeReply("measured 1.5"), FakeReply("measured 1.2")});
  policy.before = [](const Request& request) {
    if (request.task.turn == 3) throw BudgetReached(ExitCode::kDone, "the budget of $1 is reached");
  };
  f.options.turns = 8;
  const EpisodeRecord episode =
      RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel);
  CHECK(episode.state == EpisodeState::kInterrupted);
  CHECK(episode.state_reason == "the budget of $1 is reached");
  CHECK((episode.turns == 2 && episode.best_turn == 1 && episode.best_speedup == 1.5));
  CHECK(f.environment.calls.back() == "// measured 1.5 (confirm)");
}

TEST_CASE("a prompt that a server finds too long is made shorter until it fits") {
  EpisodeFixture f;
  std::vector<std::string> replies;
  for (int i = 0; i < 6; ++i) replies.push_back(FakeReply("wrong", "Summary." + std::string(2000, '.')));
  PayingPolicy policy(replies);
  size_t limit = 0;
  policy.before = [&](const Request& request) {
    size_t bytes = 0;
    for (const Message& message : request.messages) bytes += message.content.size();
    if (request.task.turn == 3) limit = bytes;
    if (request.task.turn > 3 && bytes > limit) throw PromptTooLong(ExitCode::kBadRequest, "too long");
  };
  f.options.turns = 6;
  f.options.prompt_token_budget = 100000;
  const EpisodeRecord episode =
      RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel);
  CHECK((episode.state == EpisodeState::kDone && episode.turns == 6));
  const std::string last = f.store.LoadTurn(episode.id, 6)->messages.at(1).content;
  CHECK(last == policy.requests.back().messages[1].content);
  CHECK(last.find("| 5 | wrong: ") != std::string::npos);
  CHECK(last.find("| 4 | wrong: ") == std::string::npos);
  CHECK(last.find("### Turn 5\n") != std::string::npos);
  CHECK(last.find("### Turn 1\n") == std::string::npos);

  policy.before = [](const Request&) { throw PromptTooLong(ExitCode::kBadRequest, "too long"); };
  CHECK_THROWS_AS(RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel),
                  PromptTooLong);
}

}  // namespace kevin
