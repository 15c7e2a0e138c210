// The engine with a runner whose tokens show every wrong page: whatever is batched, cut, shared, put off or
// begun before its token is known, each answer is the one that its prompt and seed alone make.

#include "policies/local/generate/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "policies/policy.h"
#include "tests/catch.h"
#include "tests/support/fake_runner.h"

namespace kevin::local {
namespace {

constexpr int kVocabulary = 24;

// Tokens are short words of few letters, so that stop texts are met, within tokens and across them.
std::string WordOf(int32_t id) {
  static const std::vector<std::string> kWords = {"a", "b", "ab", "ba", "aab", "c", "bca", ""};
  return kWords[static_cast<size_t>(id) % kWords.size()];
}

class Words : public TokenText {
 public:
  std::string Add(int32_t id) override { return WordOf(id); }
  std::string Finish() override { return "."; }
};

struct Outcome {
  std::vector<SampledToken> tokens;
  std::string text, error;
  std::optional<FinishReason> finish;
  int cached_tokens = 0, pieces_after_end = 0;
};

// Collects what an engine says and waits until all of it has come.
class Listener {
 public:
  OnPiece For(size_t request, int answers) {
    const std::lock_guard lock(mutex_);
    open_ += answers;
    outcomes_.resize(std::max(outcomes_.size(), request + 1));
    outcomes_[request].resize(static_cast<size_t>(answers));
    return [this, request](const AnswerPiece& piece) { Take(request, piece); };
  }
  std::vector<std::vector<Outcome>> Wait() {
    std::unique_lock lock(mutex_);
    const bool ended = wake_.wait_for(lock, std::chrono::seconds(60), [this] { return open_ == 0; });
    if (!ended) throw std::runtime_error("answers that never end");
    return outcomes_;
  }

 private:
  void Take(size_t request, const AnswerPiece& piece) {
    const std::lock_guard lock(mutex_);
    Outcome& outcome = outcomes_[request][static_cast<size_t>(piece.answer)];
    if (outcome.finish) ++outcome.pieces_after_end;
    outcome.tokens.insert(outcome.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    outcome.text += piece.text;
    if (!piece.finish) return;
    outcome.finish = piece.finish;
    outcome.error = piece.error;
    outcome.cached_tokens = piece.cached_tokens;
    --open_;
    wake_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::vector<Outcome>> outcomes_;
  int open_ = 0;
};

// What an answer must be, from its definition.
Outcome Expected(const FakeRunner::Options& options, const GenerationRequest& request, int answer,
                 int context) {
  TokenSampling sampling = request.sampling;
  sampling.seed = AnswerSeed(sampling.seed, answer);
  const int most = std::min(request.max_tokens, context - static_cast<int>(request.prompt.size()));
  Outcome expected;
  const auto processor = request.make_processor ? request.make_processor(answer) : AnswerProcessor();
  for (const SampledToken& token :
       FakeRunner::TrueAnswer(options, request.prompt, sampling, most, processor)) {
    expected.tokens.push_back(token);
    const auto& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token.id) != stops.end()) {
      expected.finish = FinishReason::kStop;
      break;
    }
    expected.text += WordOf(token.id);
    if (std::any_of(request.stop_texts.begin(), request.stop_texts.end(),
                    [&](const auto& stop) { return expected.text.find(stop) != std::string::npos; }))
      break;
  }
  expected.text += ".";
  size_t cut = std::string::npos;
  for (const std::string& stop : request.stop_texts) cut = std::min(cut, expected.text.find(stop));
  if (cut != std::string::npos) {
    expected.text.resize(cut);
    expected.finish = FinishReason::kStop;
  }
  if (!expected.finish) expected.finish = FinishReason::kLength;
  return expected;
}

bool SameTokens(const std::vector<SampledToken>& a, const std::vector<SampledToken>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const SampledToken& x, const SampledToken& y) {
    return x.id == y.id && x.logprob == y.logprob && x.model_logprob == y.model_logprob;
  });
}

FakeRunner::Options SmallRunner() {
  FakeRunner::Options options;
  options.shape = {kVocabulary, 200, 4, 200, 8, 32, 2};
  return options;
}

GenerationRequest RequestFor(std::vector<int32_t> prompt, int max_tokens, uint64_t seed) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  request.make_text = [] { return std::make_unique<Words>(); };
  return request;
}

std::vector<int32_t> RandomTokens(size_t count, std::mt19937& random) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % kVocabulary);
  return tokens;
}

// The token before, and one that depends on how many there are.
AnswerProcessor Forbid(int) {
  return [](std::span<const int32_t> so_far, std::span<float> logits) {
    logits[so_far.size() % logits.size()] = -1e30f;
    if (!so_far.empty()) logits[static_cast<size_t>(so_far.back())] = -1e30f;
  };
}

struct World {
  FakeRunner::Options options;
  std::vector<GenerationRequest> requests;
  std::vector<bool> is_cancelled;
};

World RandomWorld(std::mt19937& random) {
  const auto between = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
  World world;
  ModelRunner::Shape& shape = world.options.shape;
  shape.vocabulary = kVocabulary;
  shape.page_tokens = between(1, 8);
  shape.context_tokens = between(20, 120);
  const int least_pages = (shape.context_tokens + shape.page_tokens - 1) / shape.page_tokens;
  shape.pages = between(0, 3) == 0 ? 400 : least_pages + between(-2, 6);
  shape.step_sequences = between(1, 9);
  shape.step_tokens = between(1, 40);
  shape.steps_in_flight = between(1, 3);
  world.options.spread = between(1, 4);
  const int context = std::min(shape.context_tokens, shape.pages * shape.page_tokens);
  const std::vector<int32_t> stem = RandomTokens(static_cast<size_t>(context), random);
  for (int count = between(1, 12); count > 0; --count) {
    const int length = between(1, context - 1), own = between(0, 2) == 0 ? 0 : between(0, length);
    std::vector<int32_t> prompt(stem.begin(), stem.begin() + (length - own));
    const auto tail = RandomTokens(static_cast<size_t>(own), random);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    GenerationRequest request = RequestFor(prompt, between(1, 30), random());
    request.answers = between(0, 2) == 0 ? between(2, 5) : 1;
    request.sampling.temperature = between(0, 3) == 0 ? 0.0f : 0.8f;
    request.sampling.top_k = between(0, 2) == 0 ? 5 : 0;
    if (between(0, 1) == 0) request.stop_tokens = RandomTokens(static_cast<size_t>(between(1, 3)), random);
    if (between(0, 1) == 0) request.stop_texts = {"abc", "ca", "bbb."};
    if (between(0, 5) == 0) request.make_processor = Forbid;
    world.requests.push_back(std::move(request));
    world.is_cancelled.push_back(between(0, 9) == 0);
  }
  return world;
}

// Runs the world on one engine and compares all answers; adds to `sums` what the engine counted.
void Play(const World& world, std::mt19937& random, EngineStatistics* sums, FakeRunner::Counts* counts) {
  Engine engine(std::make_unique<FakeRunner>(world.options, counts));
  Listener listener;
  for (size_t i = 0; i < world.requests.size(); ++i) {
    const auto number = engine.Submit(world.requests[i], listener.For(i, world.requests[i].answers));
    if (random() % 3 == 0) std::this_thread::yield();
    if (random() % 12 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    if (world.is_cancelled[i]) engine.Cancel(number);
    if (random() % 5 == 0) engine.WhilePaused([] {});
  }
  const auto outcomes = listener.Wait();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    for (size_t answer = 0; answer < outcomes[i].size(); ++answer) {
      const Outcome& outcome = outcomes[i][answer];
      const Outcome expected =
          Expected(world.options, world.requests[i], static_cast<int>(answer), engine.ContextTokens());
      INFO("request " << i << ", answer " << answer << ": " << outcome.error);
      REQUIRE(outcome.pieces_after_end == 0);
      if (outcome.finish == FinishReason::kCancelled) {
        REQUIRE(world.is_cancelled[i]);
        REQUIRE(outcome.tokens.size() <= expected.tokens.size());
        const auto begin = expected.tokens.begin();
        REQUIRE(SameTokens(outcome.tokens, {begin, begin + static_cast<ptrdiff_t>(outcome.tokens.size())}));
        continue;
      }
      REQUIRE(SameTokens(outcome.tokens, expected.tokens));
      REQUIRE(outcome.text == expected.text);
      REQUIRE(outcome.finish == expected.finish);
    }
  }
  EngineStatistics now = engine.Statistics();
  for (int i = 0; i < 5000 && now.used_pages + now.running + now.waiting > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    now = engine.Statistics();
  }
  REQUIRE(now.used_pages + now.running + now.waiting == 0);
  sums->preemptions += now.preemptions;
  sums->cached_tokens += now.cached_tokens;
  sums->wasted_tokens += now.wasted_tokens;
  sums->generated_tokens += now.generated_tokens;
}

TEST_CASE("every answer is the true one on thousands of random schedules", "[engine]") {
  EngineStatistics sums;
  FakeRunner::Counts counts;
#ifdef __SANITIZE_ADDRESS__
  constexpr unsigned kRounds = 500;
#else
  constexpr unsigned kRounds = 3000;
#endif
  for (unsigned round = 0; round < kRounds; ++round) {
    INFO("round " << round);
    std::mt19937 random(round);
    const World world = RandomWorld(random);
    Play(world, random, &sums, &counts);
  }
  // All of the machinery was in use.
  CHECK(sums.preemptions > kRounds / 10);
  CHECK(sums.cached_tokens > kRounds);
  CHECK(sums.wasted_tokens > kRounds / 10);
  CHECK(counts.copies > static_cast<int>(kRounds) / 10);
  WARN(sums.generated_tokens << " tokens, " << sums.preemptions << " preemptions, " << sums.cached_tokens
                             << " cached, " << counts.copies << " copied pages, " << sums.wasted_tokens
                             << " wasted");
}

TEST_CASE("answers of one request draw by themselves, the first by the seed as it is given", "[engine]") {
  CHECK(AnswerSeed(7, 0) == 7);
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (int answer = 0; answer < 100; ++answer) seeds.insert(AnswerSeed(seed, answer));
  }
  CHECK(seeds.size() == 100 * 100);
}

TEST_CASE("answers of one request share their prompt", "[engine]") {
  for (const size_t length : {9u, 12u, 13u, 64u}) {
    std::mt19937 random(1);
    FakeRunner::Counts counts;
    Engine engine(std::make_unique<FakeRunner>(SmallRunner(), &counts));
    Listener listener;
    GenerationRequest request = RequestFor(RandomTokens(length, random), 10, 3);
    request.answers = 4;
    engine.Submit(request, listener.For(0, 4));
    const auto outcomes = listener.Wait()[0];
    INFO("prompt of " << length);
    CHECK(outcomes[0].cached_tokens == 0);
    for (int answer = 1; answer < 4; ++answer)
      CHECK(outcomes[static_cast<size_t>(answer)].cached_tokens == static_cast<int>(length) - 1);
    CHECK(counts.copies == ((length - 1) % 4 == 0 ? 0 : 3));
    // The prompt once, its last token three times more, and nine tokens of each answer.
    CHECK(engine.Statistics().run_tokens >= static_cast<int64_t>(length) + 3 + 4 * 9);
    CHECK(engine.Statistics().run_tokens <= static_cast<int64_t>(length) + 3 + 4 * 10);
  }
}

TEST_CASE("a prompt finds what an earlier request left in the cache", "[engine]") {
  std::mt19937 random(1);
  Engine engine(std::make_unique<FakeRunner>(SmallRunner()));
  GenerationRequest first = RequestFor(RandomTokens(21, random), 8, 3);
  Listener one;
  engine.Submit(first, one.For(0, 1));
  const Outcome answer = one.Wait()[0][0];
  REQUIRE(answer.cached_tokens == 0);
  // The conversation goes on: prompt, answer, and something new. The last token was never run.
  GenerationRequest second = first;
  for (const SampledToken& token : answer.tokens) second.prompt.push_back(token.id);
  second.prompt.push_back(1);
  Listener two;
  engine.Submit(second, two.For(0, 1));
  CHECK(two.Wait()[0][0].cached_tokens == 28);
  Listener three;
  first.prompt[2] ^= 1;
  engine.Submit(first, three.For(0, 1));
  CHECK(three.Wait()[0][0].cached_tokens == 0);
}

TEST_CASE("equal prompts that arrive together are computed once", "[engine]") {
  std::mt19937 random(1);
  FakeRunner::Options options = SmallRunner();
  options.step_seconds = 0.001;
  Engine engine(std::make_unique<FakeRunner>(options));
  const GenerationRequest request = RequestFor(RandomTokens(100, random), 2, 3);
  Listener listener;
  for (size_t i = 0; i < 8; ++i) engine.Submit(request, listener.For(i, 1));
  int computed = 0;
  for (const auto& outcomes : listener.Wait()) computed += 100 - outcomes[0].cached_tokens;
  CHECK(computed == 100 + 7 * 4);
}

TEST_CASE("decoding goes on while a long prompt is read, and a short one is not behind it", "[engine]") {
  FakeRunner::Options options = SmallRunner();
  options.shape.context_tokens = 4000;
  options.shape.pages = 2000;
  options.step_seconds = 0.002;
  std::mt19937 random(1);
  Engine engine(std::make_unique<FakeRunner>(options));
  Listener listener;
  std::mutex mutex;
  std::vector<int> order;
  const auto noting = [&](int which, const OnPiece& next) {
    return [&mutex, &order, which, next](const AnswerPiece& piece) {
      {
        const std::lock_guard lock(mutex);
        order.push_back(which);
      }
      next(piece);
    };
  };
  engine.Submit(RequestFor(RandomTokens(5, random), 100, 1), noting(0, listener.For(0, 1)));
  engine.Submit(RequestFor(RandomTokens(3000, random), 1, 1), noting(1, listener.For(1, 1)));
  engine.Submit(RequestFor(RandomTokens(40, random), 1, 1), noting(2, listener.For(2, 1)));
  listener.Wait();
  const auto at = [&](int which) { return std::find(order.begin(), order.end(), which) - order.begin(); };
  CHECK(at(2) < 30);  // the short prompt had its share of the steps
  CHECK(at(1) > 80);  // the long one took 100 of them, and the first answer drew in each
}

TEST_CASE("cancelling ends answers soon and frees their pages", "[engine]") {
  FakeRunner::Options options = SmallRunner();
  options.step_seconds = 0.001;
  Engine engine(std::make_unique<FakeRunner>(options));
  Listener listener;
  GenerationRequest request = RequestFor({1, 2, 3}, 190, 1);
  request.answers = 3;
  const auto number = engine.Submit(request, listener.For(0, 3));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  engine.Cancel(number);
  engine.Cancel(number);
  engine.Cancel(12345);
  const auto outcomes = listener.Wait();
  for (const Outcome& outcome : outcomes[0]) {
    CHECK(outcome.finish == FinishReason::kCancelled);
    CHECK(outcome.tokens.size() < 190);
  }
}

TEST_CASE("an engine that ends takes its answers along", "[engine]") {
  FakeRunner::Options options = SmallRunner();
  options.step_seconds = 0.001;
  for (const int sleep_ms : {0, 0, 0, 5}) {  // it may end before it has looked at any
    Listener listener;
    {
      Engine engine(std::make_unique<FakeRunner>(options));
      for (size_t i = 0; i < 20; ++i) engine.Submit(RequestFor({1, 2, 3}, 190, i), listener.For(i, 1));
      std::this_thread::sleep_for(std::chrono::milliseconds(sleep_ms));
    }
    for (const auto& outcomes : listener.Wait()) CHECK(outcomes[0].finish == FinishReason::kCancelled);
  }
}

TEST_CASE("a processor sees the answer so far and decides", "[engine]") {
  Engine engine(std::make_unique<FakeRunner>(SmallRunner()));
  GenerationRequest request = RequestFor({1, 2, 3}, 12, 5);
  request.answers = 2;
  request.make_processor = [](int answer) {
    return [answer](std::span<const int32_t> so_far, std::span<float> logits) {
      const size_t wanted = (so_far.size() * 3 + static_cast<size_t>(answer)) % logits.size();
      for (size_t i = 0; i < logits.size(); ++i) logits[i] = i == wanted ? 1.0f : -1e30f;
    };
  };
  Listener listener;
  engine.Submit(request, listener.For(0, 2));
  const auto outcomes = listener.Wait()[0];
  for (size_t answer = 0; answer < 2; ++answer) {
    REQUIRE(outcomes[answer].tokens.size() == 12);
    for (size_t i = 0; i < 12; ++i)
      CHECK(outcomes[answer].tokens[i].id == static_cast<int32_t>((i * 3 + answer) % kVocabulary));
  }
}

TEST_CASE("what cannot be asked is refused before anything runs", "[engine]") {
  Engine engine(std::make_unique<FakeRunner>(SmallRunner()));
  const auto refused = [&](GenerationRequest request) {
    try {
      engine.Submit(std::move(request), [](const AnswerPiece&) {});
    } catch (const PromptTooLong& error) {
      return std::string("too long");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK(refused(RequestFor({}, 1, 0)) == "the prompt has no tokens");
  CHECK(refused(RequestFor({kVocabulary}, 1, 0)) == "token 24 of the prompt is not among the model's 24");
  CHECK(refused(RequestFor({-1}, 1, 0)) == "token -1 of the prompt is not among the model's 24");
  CHECK(refused(RequestFor({1}, 0, 0)) == "less than one token is asked for");
  CHECK(refused(RequestFor(std::vector<int32_t>(200, 1), 1, 0)) == "too long");
  CHECK(refused(RequestFor(std::vector<int32_t>(199, 1), 1, 0)) == "taken");
  GenerationRequest request = RequestFor({1}, 1, 0);
  request.answers = 0;
  CHECK(refused(request) == "less than one answer is asked for");
  request = RequestFor({1}, 1, 0);
  request.stop_texts = {""};
  CHECK(refused(request) == "a stop text is empty");
}

TEST_CASE("a runner that fails fails its answers, and those to come", "[engine]") {
  FakeRunner::Options options = SmallRunner();
  options.fail_at_step = 5;
  Engine engine(std::make_unique<FakeRunner>(options));
  Listener listener;
  engine.Submit(RequestFor({1, 2, 3}, 100, 1), listener.For(0, 1));
  const Outcome outcome = listener.Wait()[0][0];
  CHECK(outcome.finish == FinishReason::kFailed);
  CHECK(outcome.error == "the device fell off the bus");
  CHECK(outcome.tokens.size() < 6);
  REQUIRE(engine.PermanentFailure());
  CHECK_THROWS_AS(engine.Submit(RequestFor({1}, 1, 0), [](const AnswerPiece&) {}), Error);
}

TEST_CASE("logits that are no numbers end their answers, not the engine", "[engine]") {
  FakeRunner::Options options = SmallRunner();
  options.not_finite_at_step = 3;
  Engine engine(std::make_unique<FakeRunner>(options));
  Listener listener;
  engine.Submit(RequestFor({1, 2, 3}, 100, 1), listener.For(0, 1));
  CHECK(listener.Wait()[0][0].finish == FinishReason::kFailed);
  Listener after;
  engine.Submit(RequestFor({1, 2, 3}, 10, 1), after.For(0, 1));
  CHECK(after.Wait()[0][0].finish == FinishReason::kLength);
}

// Says whether it was used while it had to stand still.
class Watched : public FakeRunner {
 public:
  Watched(Options options, std::atomic<int>* uses, std::atomic<int>* changes)
      : FakeRunner(options), uses_(*uses), changes_(*changes) {}
  void Submit(std::span<const SequenceStep> steps) override {
    ++uses_;
    FakeRunner::Submit(steps);
  }
  void GiveUpCache() override { ++given_up; }
  void WeightsChanged() override { ++changes_; }

  static inline std::atomic<int> given_up{0};

 private:
  std::atomic<int>&uses_, &changes_;
};

TEST_CASE("while weights change nothing runs, and nothing cached outlives it") {
  std::atomic<int> uses{0}, changes{0};
  FakeRunner::Options options = SmallRunner();
  options.step_seconds = 0.001;
  Engine engine(std::make_unique<Watched>(options, &uses, &changes));
  std::mt19937 random(7);
  const std::vector<int32_t> prompt = RandomTokens(40, random);
  const GenerationRequest request = RequestFor(prompt, 100, 1);
  Listener listener;
  engine.Submit(request, listener.For(0, 1));
  while (engine.Statistics().generated_tokens < 5) std::this_thread::yield();
  int before = 0, after = -1;
  engine.WhilePaused([&] {
    before = uses;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    after = uses;
  });
  CHECK(before == after);
  CHECK(changes == 1);
  CHECK(Watched::given_up == 0);
  engine.WhilePaused([] { CHECK(Watched::given_up == 1); }, true);
  CHECK(changes == 2);
  CHECK_THROWS_AS(engine.WhilePaused([] { throw Error(ExitCode::kBroken, "no"); }), Error);
  CHECK(changes == 3);
  const auto first = listener.Wait();
  CHECK(SameTokens(first[0][0].tokens, Expected(options, request, 0, engine.ContextTokens()).tokens));
  Listener again, anew;
  engine.Submit(RequestFor(prompt, 3, 2), again.For(0, 1));
  CHECK(again.Wait()[0][0].cached_tokens > 0);
  engine.WhilePaused([] {});
  CHECK(engine.Statistics().cached_pages == 0);
  engine.Submit(RequestFor(prompt, 3, 2), anew.For(0, 1));
  CHECK(anew.Wait()[0][0].cached_tokens == 0);
}

}  // namespace
}  // namespace kevin::local
