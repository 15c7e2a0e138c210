// A thousand episodes against a server that fails one request in ten: every episode complete, every token
// accounted for, and nothing asked twice when all of it is done again from the response cache.

#include <array>
#include <atomic>
#include <fstream>
#include <thread>

#include "agent/episode.h"
#include "tests/catch.h"
#include "tests/policies/remote/remote_fixture.h"
#include "tests/support/fakes.h"
#include "trajectories/database.h"

using namespace kevin;
using namespace kevin::test;

namespace {

constexpr int kEpisodes = 1000;
constexpr int kTurns = 2;
constexpr int kThreads = 32;

// Fails by the hash of the request's number, so that faults come in no rhythm.
MockFault FaultOf(int number) {
  constexpr std::array kFaults = {MockFault::kTooMany,       MockFault::kTooManyWait, MockFault::kOverloaded,
                                  MockFault::kServerError,   MockFault::kCut,         MockFault::kMalformed,
                                  MockFault::kErrorInStream, MockFault::kWrongType,   MockFault::kStall,
                                  MockFault::kNoUsage};
  const uint64_t hash = static_cast<uint64_t>(number) * 0x9E37'79B9'7F4A'7C15u >> 32;
  return hash % 10 == 0 ? kFaults[hash / 10 % kFaults.size()] : MockFault::kNone;
}

// What the server did, to be compared with what the database says.
struct Ledger {
  std::mutex mutex;
  std::map<MockFault, int> faults;
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;

  MockReply Reply(const MockRequest& request) {
    const MockFault fault = FaultOf(request.number);
    MockAnswer answer;
    answer.text = testing::FakeReply(request.number % 3 == 0 ? "wrong" : "measured 1.5");
    answer.usage = {100 + request.number % 50, 20 + request.number % 7, request.number % 11, 0, 0};
    const std::lock_guard lock(mutex);
    ++faults[fault];
    if (fault == MockFault::kNone) {
      prompt_tokens += answer.usage.prompt_tokens;
      completion_tokens += answer.usage.completion_tokens;
      cached_tokens += answer.usage.cached_tokens;
    }
    return ReplyTo(request, answer, fault, 0.02);
  }
  int Count(std::initializer_list<MockFault> of) {
    int count = 0;
    for (const MockFault fault : of) count += faults[fault];
    return count;
  }
};

// Judges every candidate anew: a repeated verdict says so in its feedback, and prompts would differ.
class ForgetfulEnvironment : public testing::FakeEnvironment {
 public:
  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override {
    static std::atomic<int> count = 0;
    return FakeEnvironment::EvaluationKey(problem, candidate, options) + std::to_string(++count);
  }
};

struct Collection {
  testing::TempFolder folder;
  Ledger ledger;
  MockApi api;
  Problem problem = testing::ReluProblem();
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);

  Collection() {
    api.handler = [this](const MockRequest& request) { return ledger.Reply(request); };
    std::ofstream(folder.path() / "prices.json")
        << R"({"mock-1": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-5}})";
  }

  std::unique_ptr<RemotePolicy> Policy() {
    RemoteOptions options = QuickOptions("openai:mock-1", api.Base("openai"));
    options.attempts = 9;
    options.http.stall_s = 0.25;
    options.prices = remote::PriceTable::Read(folder.path() / "prices.json");
    options.response_cache = folder.path() / "responses";
    return MakeRemotePolicy(options);
  }

  // Returns how many episodes ended as they should.
  int Run(int episodes) {
    const auto policy = Policy();
    const std::string run = store.BeginRun({});
    std::atomic<int> next = 0, done = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        ForgetfulEnvironment environment;
        for (int seed = next++; seed < episodes; seed = next++) {
          EpisodeOptions options;
          options.run = run;
          options.seed = static_cast<uint64_t>(seed);
          options.turns = kTurns;
          options.output = folder.path() / "out";
          options.machine = "Fake CPU";
          options.audit_rates = {0, 0};
          const EpisodeRecord episode =
              RunEpisode(problem, *policy, environment, store, options, {}, nullptr);
          if (episode.state == EpisodeState::kDone && episode.turns == kTurns) ++done;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return done;
  }

  int64_t Ask(const std::string& sql) {
    Database database(folder.path() / "kevin.db", Database::Access::kReadOnly, 5000);
    return database.QueryInteger(("SELECT " + sql).c_str());
  }
};

}  // namespace

TEST_CASE("a thousand episodes with one fault in ten requests") {
  Collection c;
  CHECK(c.Run(kEpisodes) == kEpisodes);
  const int requests = c.api.server().requests();
  const int faults = requests - c.ledger.faults[MockFault::kNone];
  CHECK(faults > requests / 20);
  CHECK(c.ledger.faults.size() == 11);  // each kind has happened

  // Every request that the server received is a row, and every row has its result.
  CHECK(c.Ask("count(*) FROM requests") == requests);
  CHECK(c.Ask("count(*) FROM requests WHERE outcome = 'answered'") == kEpisodes * kTurns);
  CHECK(c.Ask("count(*) FROM requests WHERE outcome NOT IN ('answered', 'failed')") == 0);
  CHECK(c.Ask("count(*) FROM requests WHERE status = 429") ==
        c.ledger.Count({MockFault::kTooMany, MockFault::kTooManyWait}));
  CHECK(c.Ask("count(*) FROM requests WHERE retry_after_s = 0.02") ==
        c.ledger.faults[MockFault::kTooManyWait]);
  CHECK(c.Ask("count(*) FROM requests WHERE status = 529") == c.ledger.faults[MockFault::kOverloaded]);
  CHECK(c.Ask("count(*) FROM requests WHERE status = 500") == c.ledger.faults[MockFault::kServerError]);
  CHECK(c.Ask("count(*) FROM requests WHERE outcome = 'failed' AND status = 200") ==
        c.ledger.Count({MockFault::kCut, MockFault::kMalformed, MockFault::kErrorInStream,
                        MockFault::kWrongType, MockFault::kStall}));

  // The token counts of the server, the requests and the turns are equal.
  CHECK(c.Ask("sum(prompt_tokens) FROM requests") == c.ledger.prompt_tokens);
  CHECK(c.Ask("sum(completion_tokens) FROM requests") == c.ledger.completion_tokens);
  CHECK(c.Ask("sum(cached_tokens) FROM requests") == c.ledger.cached_tokens);
  CHECK(c.Ask("sum(prompt_tokens) FROM turns") == c.ledger.prompt_tokens);
  CHECK(c.Ask("sum(completion_tokens) FROM turns") == c.ledger.completion_tokens);
  CHECK(c.Ask("count(*) FROM requests WHERE outcome = 'answered' AND prompt_tokens IS NULL") ==
        c.ledger.faults[MockFault::kNoUsage]);

  // The costs are equal too: errors cost nothing, a request without usage is unknown, the rest adds up.
  CHECK(c.Ask("round(sum(cost_usd) * 1e6) FROM requests") ==
        c.ledger.prompt_tokens + 10 * c.ledger.completion_tokens);
  CHECK(c.Ask("sum(unknown_costs) FROM run_costs") ==
        c.ledger.Count({MockFault::kNoUsage, MockFault::kCut, MockFault::kMalformed,
                        MockFault::kErrorInStream, MockFault::kWrongType, MockFault::kStall}));
  CHECK(c.Ask("cost_usd IS NULL FROM run_costs") == 1);
  CHECK(c.Ask("solved_problems FROM run_costs") == 1);

  CHECK(c.Run(100) == 100);  // again, from the cache
  CHECK(c.api.server().requests() == requests);
  CHECK(c.Ask("count(*) FROM requests WHERE outcome = 'cached'") == 100 * kTurns);
  CHECK(c.Ask("sum(prompt_tokens) FROM requests") == c.ledger.prompt_tokens);
  CHECK(c.Ask("round(cost_usd * 1e6) FROM run_costs ORDER BY run DESC LIMIT 1") == 0);
}
