// Shaping terms: their arithmetic by hand and against Python's difflib, and that they are off unless asked for.

#include "agent/attribution/shaping.h"

#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"
#include "trajectories/figures.h"

namespace kevin {
namespace {

// Letters a to d from a linear congruential generator, as for the values from Python below.
std::string Letters(uint32_t seed, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    seed = (seed * 1103515245u + 12345u) % 2147483648u;
    text += static_cast<char>('a' + (seed >> 16) % 4);
  }
  return text;
}

constexpr const char* kTriton = R"(import triton
import triton.language as tl

@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

def launch(x, out):
    kernel[(1,)](x, out, N, BLOCK=128)
)";

}  // namespace

TEST_CASE("tags: reasoning and a fenced block") {
  CHECK(TagsReward("<think>a</think>\n```python\nx\n```\n", "") == 1);
  CHECK(TagsReward("<thinking>a</thinking>```py\nx\n```", "") == 1);
  CHECK(TagsReward("a</think>\n```\nx\n```\n", "") == 1);  // the chat template opened the tag
  CHECK(TagsReward("```cpp\nx\n```\n", "as the server sent it") == 1);
  CHECK(TagsReward("<think>```\nx\n```\n</think> no block", "") == 0.5);
  CHECK(TagsReward("<think>a</think>\n```python\ncut off", "") == 0.5);
  CHECK(TagsReward("```python\nx\n```\n", "") == 0);
  CHECK(TagsReward("<think>never closed ```\nx\n```\n", "") == 0);
  CHECK(TagsReward("", "") == 0);
}

TEST_CASE("similarity: the ratio of difflib.SequenceMatcher") {
  CHECK(SequenceRatio("abcd", "bcde") == 0.75);
  CHECK(SequenceRatio("", "") == 1);
  CHECK(SequenceRatio("a", "") == 0);
  CHECK(SequenceRatio("same\n", "same\n") == 1);
  CHECK(SequenceRatio("qabxcd", "abycdf") == Approx(2.0 / 3));
  CHECK(SequenceRatio("private Thread currentThread;", "private volatile Thread currentThread;") ==
        Approx(0.8656716417910447));
  CHECK(SequenceRatio("abcabba", "cbabac") == Approx(0.46153846153846156));
  CHECK(SequenceRatio(Letters(1, 300), Letters(101, 280)) == Approx(0.21724137931034482));
  CHECK(SequenceRatio(Letters(2, 1000), Letters(102, 900)) == Approx(0.1631578947368421));
  CHECK(SequenceRatio(Letters(3, 50), Letters(103, 500)) == Approx(0.11272727272727273));
  const std::string deep(kMostComparedBytes * 2, 'a');  // compared up to the limit, without recursion
  CHECK(SequenceRatio(deep, std::string(64, 'a')) ==
        Approx(128.0 / (64 + static_cast<double>(kMostComparedBytes))));
}

TEST_CASE("staged: points for features of the text, of 90") {
  CHECK(StagedReward(kTriton, "triton", true) == Approx((30 + 15 + 15 + 12 + 7.5 + 7.5) / 90));
  CHECK(StagedReward(kTriton, "triton", false) == Approx(57.0 / 90));
  CHECK(StagedReward(kTriton, "modelnew", true) == Approx(87.0 / 90));
  CHECK(StagedReward(kTriton, "cuda", true) == 0);
  CHECK(StagedReward("import triton\n", "triton", false) == 0);
  CHECK(StagedReward("", "triton", true) == 0);
  const std::string all = std::string(kTriton) + "tl.sum tl.max tl.exp tl.where tl.zeros tl.dot";
  CHECK(StagedReward(all, "triton", true) == Approx(1));
}

TEST_CASE("overlong: nothing up to the soft limit, then down to -1 at the limit") {
  const double cache = 0.2;  // 4096 of 20480
  CHECK(OverlongReward(1, 20480, false, cache) == 0);
  CHECK(OverlongReward(16384, 20480, false, cache) == 0);
  CHECK(OverlongReward(16385, 20480, false, cache) == Approx(-1.0 / 4096));
  CHECK(OverlongReward(18432, 20480, false, cache) == Approx(-0.5));
  CHECK(OverlongReward(20480, 20480, false, cache) == -1);
  CHECK(OverlongReward(30000, 20480, false, cache) == -1);
  CHECK(OverlongReward(75, 100, false, 0.5) == Approx(-0.5));
  CHECK(OverlongReward(25, 100, false, 1) == Approx(-0.25));
  // At the end of the context it was cut off before its own limit.
  CHECK(OverlongReward(100, 20480, true, cache) == -1);
  CHECK(OverlongReward(std::nullopt, 20480, true, cache) == -1);
  CHECK(OverlongReward(std::nullopt, 20480, false, cache) == 0);
  CHECK(OverlongReward(20480, std::nullopt, false, cache) == 0);
  CHECK(OverlongReward(20480, 0, false, cache) == 0);
}

TEST_CASE("the terms are added to the verified score, and only where they are weighed") {
  const TurnFacts right{true, true, true, 2, 0.01, 1, 0.5, 0.25};
  const TurnFacts wrong{true, true, false, 0, 0, 1, 0.5, 0.25};
  for (const Scheme& scheme : KnownSchemes()) {
    INFO(scheme.name);
    CHECK(HasShaping(scheme.score) == (scheme.name == "dapo"));
    CHECK(ScoreOf(scheme.score, right).score ==
          ScoreOf(scheme.score, {true, true, true, 2, 0.01, 0, 0, 0}).score);
  }
  ScoreRule rule;
  rule.tags = 0.1, rule.similarity = 0.2, rule.staged = 0.4;
  CHECK(HasShaping(rule));
  CHECK(ScoreOf(rule, right).score == Approx(0.3 + 2 + 0.1 + 0.1 + 0.1));
  CHECK(ScoreOf(rule, right).se == Approx(0.02));
  CHECK(ScoreOf(rule, wrong).score == Approx(0.3));
  rule.kind = ScoreRule::Kind::kMilestones;
  CHECK(ScoreOf(rule, right).score == Approx(2.3));
  const TurnFacts overlong{true, true, true, 2, 0.01, 0, 0, 0, -0.5};
  CHECK(ScoreOf(FindScheme("dapo")->score, overlong).score == Approx(0.3 + 2 - 0.5));
  rule = {}, rule.overlong = 3;
  CHECK(ScoreOf(rule, overlong).score == Approx(0.3 + 2 - 1.5));

  Scheme scheme = *FindScheme("kevin");
  CHECK_FALSE(SchemeJson(scheme)["score"].contains("tags"));
  scheme.score.tags = 0.1;
  CHECK(SchemeJson(scheme)["score"]["tags"] == 0.1);
  CHECK_FALSE(SchemeJson(scheme)["score"].contains("overlong_cache"));
  CHECK(SchemeJson(*FindScheme("dapo"))["score"]["overlong"] == 1);
  CHECK(SchemeJson(*FindScheme("dapo"))["score"]["overlong_cache"] == 0.2);
}

TEST_CASE("terms of stored turns: similarity is to the fastest kernel of another episode") {
  const TemporaryFolder folder;
  Store store = Store::Open(folder / "records.db", OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  const auto add = [&](const std::vector<std::pair<std::string, double>>& kernels) {
    const std::string id = store.BeginEpisode(SampleEpisode(run), SampleProblem());
    int number = 0;
    for (const auto& [source, speedup] : kernels) {
      TurnRecord turn = SampleTurn(++number, speedup);
      turn.reply = "<think>a</think>\n```\n" + source + "\n```\n", turn.reasoning.clear();
      turn.evaluation = SampleEvaluation(source, speedup);
      store.AppendTurn(id, turn);
    }
    return id;
  };
  add({{"abcd", 2.0}, {"zzzz", 1.1}});
  add({{"bcde", 1.5}, {"abcd", 1.2}});
  const Figures figures = store.LoadFigures({});
  ScoreRule rule;
  const std::vector<AttributedEpisode> plain = ToAttributed(figures, rule, store);
  REQUIRE(plain.size() == 2);
  CHECK((plain[0].turns[0].tags == 0 && plain[0].turns[0].similarity == 0));
  rule.tags = 0.1, rule.similarity = 1;
  const std::vector<AttributedEpisode> shaped = ToAttributed(figures, rule, store);
  // The first episode's kernels against "bcde", the second one's against "abcd".
  CHECK(shaped[0].turns[0].similarity == 0.75);
  CHECK(shaped[0].turns[1].similarity == 0);
  CHECK(shaped[1].turns[0].similarity == 0.75);
  CHECK(shaped[1].turns[1].similarity == 1);
  CHECK(shaped[1].turns[1].tags == 1);
  CHECK(shaped[0].turns[0].speedup == plain[0].turns[0].speedup);
}

TEST_CASE("terms of stored turns: the length is that of the tokens, the limit the turn's own") {
  const TemporaryFolder folder;
  Store store = Store::Open(folder / "records.db", OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  const std::string id = store.BeginEpisode(SampleEpisode(run), SampleProblem());
  const auto add = [&](int number, size_t tokens, int limit, const std::string& stop) {
    TurnRecord turn = SampleTurn(number, 1);
    turn.token_ids.assign(tokens, 7), turn.logprobs.assign(tokens, -1.0f);
    turn.usage.completion_tokens = 90, turn.sampling.max_tokens = limit, turn.stop_reason = stop;
    store.AppendTurn(id, turn);
  };
  add(1, 95, 100, "stop"), add(2, 95, 1000, "stop"), add(3, 10, 100, "length"), add(4, 0, 100, "stop");
  ScoreRule rule;
  rule.overlong = 1;
  const std::vector<AttributedEpisode> shaped = ToAttributed(store.LoadFigures({}), rule, store);
  const std::vector<TurnFacts>& turns = shaped.at(0).turns;
  REQUIRE(turns.size() == 4);
  CHECK(turns[0].overlong == Approx(-0.75));
  CHECK(turns[1].overlong == 0);
  CHECK(turns[2].overlong == -1);
  CHECK(turns[3].overlong == Approx(-0.5));  // without token ids the server's count
  rule.overlong_cache = 0.1;
  CHECK(ToAttributed(store.LoadFigures({}), rule, store)[0].turns[0].overlong == Approx(-0.5));
}

}  // namespace kevin
