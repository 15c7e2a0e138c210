// Requests to servers: kept before they are sent, closed when they end, and what they cost.

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

RequestRecord Begun(int turn) {
  RequestRecord r;
  r.turn = turn;
  r.provider = "anthropic";
  r.url = "https://api.anthropic.com/v1/messages";
  r.model = "claude";
  r.request = std::string("{\"nul\": \"\0\", \"bad\": \"\xff\"}", 24);
  r.outcome = "sent";
  return r;
}

RequestRecord Ended(RequestRecord r, const std::string& outcome, std::optional<double> cost) {
  r.outcome = outcome;
  r.status = outcome == "answered" ? 200 : 529;
  if (outcome != "answered") r.error = "HTTP 529: Overloaded";
  r.retry_after_s = 2.5, r.seconds = 1.25, r.first_token_s = 0.5;
  r.served_model = "claude-2026", r.request_id = "req_1", r.stop_cause = "end_turn";
  if (outcome == "answered") {
    r.usage = {1000, 100, 600, 40};
    r.cache_write_tokens = 200;
  }
  r.cost_usd = cost;
  r.response = "event: ping\n\n";
  return r;
}

// Adds a request that has ended.
void Keep(Store& store, const std::string& episode, int turn, const std::string& outcome,
          std::optional<double> cost) {
  RequestRecord r = Begun(turn);
  r.attempt = store.BeginRequest(episode, r);
  store.EndRequest(episode, Ended(r, outcome, cost));
}

TEST_CASE("a request is there before it is sent, and whole when it has ended") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  RequestRecord r = Begun(1);
  CHECK(store.BeginRequest(episode, r) == 1);
  {
    Store other = Store::Open(folder / "kevin.db", OpenMode::kRead);  // what a killed process leaves
    const auto left = other.LoadRequests(episode, 1);
    REQUIRE(left.size() == 1);
    CHECK((left[0].outcome == "sent" && left[0].request == r.request && !left[0].seconds));
    CHECK((!left[0].cost_usd && !left[0].usage.prompt_tokens && left[0].response.empty()));
    CHECK_FALSE(left[0].started_at.empty());
    CHECK_FALSE(other.FindEpisode(episode).cost_usd);
  }
  CHECK(store.BeginRequest(episode, r) == 2);  // begun anew
  r.attempt = 2;
  const RequestRecord ended = Ended(r, "answered", 0.125);
  store.EndRequest(episode, ended);
  const auto both = store.LoadRequests(episode, 1);
  REQUIRE(both.size() == 2);
  CHECK(both[0].outcome == "sent");
  const RequestRecord& read = both[1];
  CHECK(
      (read.outcome == "answered" && read.status == 200 && read.error.empty() && read.request == r.request));
  CHECK((read.retry_after_s == 2.5 && read.seconds == 1.25 && read.first_token_s == 0.5));
  CHECK((read.served_model == "claude-2026" && read.request_id == "req_1" && read.stop_cause == "end_turn"));
  CHECK((read.usage.prompt_tokens == 1000 && read.usage.completion_tokens == 100));
  CHECK((read.usage.cached_tokens == 600 && read.usage.reasoning_tokens == 40 &&
         read.cache_write_tokens == 200));
  CHECK((read.cost_usd == 0.125 && read.response == "event: ping\n\n" && !read.run.empty()));
  CHECK(store.LoadRequests(episode, 2).empty());
  CHECK_THROWS_AS(store.BeginRequest("01JNONE", r), Error);
}

TEST_CASE("cost of turns, episodes, runs and solved problems; unknown is not 0") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  const std::string solved = store.BeginEpisode(SampleEpisode(run), SampleProblem());
  const std::string second = store.BeginEpisode(SampleEpisode(run), SampleProblem());
  Keep(store, solved, 1, "failed", 0);
  Keep(store, solved, 1, "answered", 0.5);
  Keep(store, solved, 2, "answered", 0.25);
  Keep(store, second, 1, "answered", 0.25);
  store.AppendTurn(solved, SampleTurn(1, 1.5));
  CHECK((store.FindEpisode(solved).requests == 3 && store.FindEpisode(solved).cost_usd == 0.75));
  CHECK((store.LoadTurn(solved, 1)->requests == 2 && store.LoadTurn(solved, 1)->cost_usd == 0.5));
  Database database = Look(folder / "kevin.db");
  const auto ask = [&](const std::string& sql) { return database.QueryText(("SELECT " + sql).c_str()); };
  CHECK(ask("requests || ' ' || failed || ' ' || cost_usd FROM turn_costs WHERE turn = 1 AND episode = '" +
            solved + "'") == "2 1 0.5");
  CHECK(ask("turns || ' ' || prompt_tokens || ' ' || solved FROM episode_costs WHERE episode = '" + solved +
            "'") == "2 2000 1");
  CHECK(ask("episodes || ' ' || problems || ' ' || solved_problems || ' ' || cost_usd || ' ' || "
            "usd_per_solved_problem FROM run_costs") == "2 1 1 1.0 1.0");
  Keep(store, second, 2, "failed", {});  // broke off: nobody knows
  CHECK(ask("cost_usd IS NULL FROM run_costs") == "1");
  CHECK(ask("known_usd || ' ' || unknown_costs FROM run_costs") == "1.0 1");
  CHECK_FALSE(store.FindEpisode(second).cost_usd);
}

TEST_CASE("a database of format 2 has no requests, and gets room for them when it is written") {
  TemporaryFolder folder;
  std::filesystem::copy_file(SourceFolder().string() + "/tests/trajectories/data/v2.db", folder / "kevin.db");
  std::string episode;
  {
    Store store = Store::Open(folder / "kevin.db", OpenMode::kRead);
    REQUIRE(!store.ListEpisodes(1).empty());
    episode = store.ListEpisodes(1)[0].id;
    CHECK(store.LoadRequests(episode, 1).empty());
    CHECK((store.FindEpisode(episode).requests == 0 && !store.LoadTurn(episode, 1)->cost_usd));
  }
  Store store = Store::Open(folder / "kevin.db", OpenMode::kWrite);
  Keep(store, episode, 1, "answered", 0.5);
  CHECK(store.LoadTurn(episode, 1)->cost_usd == 0.5);
}

}  // namespace
}  // namespace kevin
