// Which earlier attempts a later prompt shows, and how: in full, by table, by difference, within the budget.

#include "agent/history.h"

#include <fmt/ranges.h>

#include "tests/agent/conversation_fixture.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using testing::AsText;
using testing::ConversationFixture;
using testing::Has;
using testing::Turn;

// As a strong model plays: each kernel of 12 KB changes some lines of the best one.
std::vector<TurnRecord> LongEpisode(int turns) {
  std::vector<TurnRecord> played;
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) lines.push_back("  sum += a[" + std::to_string(i) + "] * b[j];  // step");
  for (int number = 1; number <= turns; ++number) {
    const bool is_correct = number != 2 && number != 5;
    std::vector<std::string> own = lines;
    for (int i = 0; i < 2 * number; ++i)
      own[static_cast<size_t>(i)] = "  changed(" + std::to_string(number) + ");";
    if (number == 2) own.assign(300, "  // a kernel of another form, which did not work out");
    played.push_back(Turn(number, is_correct ? "measured 1.5" : "wrong",
                          is_correct ? std::optional(1 + 0.1 * number) : std::nullopt,
                          "Changed the tile to " + std::to_string(number) + "."));
    for (const std::string& line : own) played.back().evaluation.source += line + "\n";
    played.back().feedback += std::string(900, '.');
    if (!is_correct) played.back().evaluation.reason = "out[0] = 1, expected 2; 3 of 4 elements are off";
    if (is_correct && number > 1) {
      const double ratio = number == 3 ? 1.2 : 0.9;
      played.back().evaluation.against_best = Ratio{ratio, ratio - 0.02, ratio + 0.02};
      played.back().evaluation.against_best_turn = number == 3 ? 1 : 3;
    }
  }
  return played;
}

}  // namespace

TEST_CASE(
    "where a prompt does not fit, rows of the table are dropped from the oldest on, the latest kernel stays") {
  ConversationFixture f;
  std::vector<TurnRecord> turns;
  for (int number = 1; number <= 20; ++number) {
    turns.push_back(Turn(number, "wrong", {}, "Summary " + std::to_string(number) + std::string(400, '.')));
  }
  f.context.prompt_token_budget = PromptTokens(BuildMessages(f.context, turns), {}) - 1;
  const std::vector<Message> messages = BuildMessages(f.context, turns);
  const std::string text = AsText(messages);
  CHECK(PromptTokens(messages, {}) <= f.context.prompt_token_budget);
  CHECK(Has(text, "### Turn 20\n"));
  CHECK_FALSE(Has(text, "### Turn 19\n"));
  CHECK((Has(text, "| 5 | wrong |") && !Has(text, "| 4 | wrong |")));
  f.context.prompt_token_budget = 1;
  const std::string least = AsText(BuildMessages(f.context, turns));
  CHECK(Has(least, "### Turn 20\n"));
  CHECK((Has(least, "| 20 | wrong |") && !Has(least, "| 19 | wrong |")));
}

TEST_CASE("the best kernel and the table of all attempts stay when old kernels are left out") {
  ConversationFixture f;
  std::vector<TurnRecord> turns;
  for (int number = 1; number <= 12; ++number) {
    const std::string speed = number == 3 ? "2" : "1." + std::to_string(number);
    turns.push_back(Turn(number, "measured " + speed, number == 3 ? 2 : 1.0 + 0.01 * number,
                         "Summary " + std::to_string(number) + ". And more | of it."));
    turns.back().evaluation.source += std::string(2000, '/') + "\n";
    if (number > 3) {
      turns.back().evaluation.against_best = Ratio{0.6, 0.58, 0.62};
      turns.back().evaluation.against_best_turn = 3;
    } else if (number > 1) {
      turns.back().evaluation.against_best = Ratio{1.5, 1.4, 1.6};
      turns.back().evaluation.against_best_turn = number - 1;
    }
  }
  f.context.prompt_token_budget = 3800;
  const std::string text = AsText(BuildMessages(f.context, turns));
  CHECK_FALSE(Has(text, "### Turn 2\n"));
  CHECK(Has(text, "### Turn 3\n\n```cpp\n// measured 2\n"));
  CHECK_FALSE(Has(text, "### Turn 4\n"));
  CHECK(Has(text, "### Turn 12\n"));
  CHECK(text.find("### Turn 3") < text.find("### Turn 12"));
  CHECK(Has(
      text,
      "| 3 | measured, the best | 2x (1.95x to 2.05x) | turn 2: 1.5x (1.4x to 1.6x), faster | Summary 3. |\n"));
  CHECK(Has(
      text,
      "| 4 | measured | 1.04x (0.99x to 1.09x) | turn 3: 0.6x (0.58x to 0.62x), slower | Summary 4. |\n"));
  CHECK(Has(text, "The best result so far is turn 3 with 2x"));
  f.context.prompt_token_budget = 1;  // what the table lacks is not the best one
  CHECK((Has(AsText(BuildMessages(f.context, turns)), "| 3 | measured, the best |") &&
         !Has(AsText(BuildMessages(f.context, turns)), "| 4 | measured |")));
}

TEST_CASE(
    "of six kernels of 12 KB the best and the latest are shown in full, others by table and difference") {
  ConversationFixture f;
  f.context.prompt_token_budget = 100000;
  std::vector<size_t> bytes;
  for (int turns = 1; turns <= 6; ++turns)
    bytes.push_back(AsText(BuildMessages(f.context, LongEpisode(turns))).size());
  INFO(fmt::format("bytes of the prompts of turns 2 to 7: {}", fmt::join(bytes, ", ")));
  CHECK(bytes.back() < 38000);
  const std::string text = AsText(BuildMessages(f.context, LongEpisode(6)));
  for (const int number : {1, 2, 4, 5}) CHECK_FALSE(Has(text, fmt::format("### Turn {}\n", number)));
  CHECK(text.find("### Turn 3\n") < text.find("### Turn 6\n"));
  CHECK(Has(text,
            "| 2 | wrong: out[0] = 1, expected 2; 3 of 4 elements are off |  |  | Changed the tile to 2. |"));
  CHECK(Has(text, "--- turn 3\n+++ turn 1\n"));
  CHECK(Has(text, "--- turn 3\n+++ turn 4\n"));
  CHECK_FALSE(Has(text, "+++ turn 2\n"));  // another form: no short difference
  f.context.prompt_token_budget = 1;
  CHECK_FALSE(Has(AsText(BuildMessages(f.context, LongEpisode(6))), "+++ turn 4\n"));
}

TEST_CASE(
    "what did not compile has no difference in later turns, and a reply without a kernel is shown once") {
  ConversationFixture f;
  std::vector<TurnRecord> turns = LongEpisode(4);
  turns[3].evaluation.outcome = "compile_failed", turns[3].evaluation.correct = false;
  turns[3].evaluation.speedup.reset(), turns[3].evaluation.against_best.reset();
  turns.push_back(LongEpisode(5).back());
  f.context.prompt_token_budget = 100000;
  CHECK_FALSE(Has(AsText(BuildMessages(f.context, turns)), "+++ turn 4\n"));
  turns.push_back(Turn(6, "", {}, ""));
  std::string text = AsText(BuildMessages(f.context, turns));
  CHECK((Has(text, "### Turn 3\n") && Has(text, "### Turn 5\n") &&
         Has(text, "### Turn 6\n\nFeedback of turn 6.")));
  turns.push_back(Turn(7, "measured 1", 1, ""));
  text = AsText(BuildMessages(f.context, turns));
  CHECK_FALSE(Has(text, "### Turn 6\n"));
}

TEST_CASE("turns that are not distinguishable from the best one are named beside it") {
  ConversationFixture f;
  std::vector<TurnRecord> turns = {Turn(1, "measured 2", 2, ""), Turn(2, "measured 2.1", 2.1, ""),
                                   Turn(3, "measured 1", 1, ""), Turn(4, "measured 2.2", 2.2, "")};
  const std::vector<Ratio> against = {{1.05, 0.9, 1.2}, {0.5, 0.49, 0.51}, {1.1, 0.95, 1.3}};
  for (size_t i = 1; i < turns.size(); ++i)
    turns[i].evaluation.against_best = against[i - 1], turns[i].evaluation.against_best_turn = 1;
  CHECK(Has(
      AsText(BuildMessages(f.context, turns)),
      "The best result so far is turn 1 with 2x (1.95x to 2.05x); turns 2, 4 are not distinguishable from it, so "
      "continue from turn 1 or 4."));
  turns.push_back(Turn(5, "wrong", {}, ""));  // neither 2 nor 4 is shown
  CHECK(Has(AsText(BuildMessages(f.context, turns)), "turns 2, 4 are not distinguishable from it.\n"));
}

TEST_CASE("the difference of the latest kernel from the best one, where it is short") {
  ConversationFixture f;
  std::vector<TurnRecord> turns = {Turn(1, "measured 2", 2, ""), Turn(2, "measured 1", 1, "")};
  std::string body;
  for (int line = 0; line < 40; ++line)
    body += "// a line that both of the kernels have, number " + std::to_string(line) + "\n";
  for (TurnRecord& turn : turns) turn.evaluation.source += body + "\n";
  turns[1].evaluation.against_best = Ratio{0.5, 0.49, 0.51}, turns[1].evaluation.against_best_turn = 1;
  const std::string text = AsText(BuildMessages(f.context, turns));
  INFO(text);
  CHECK(
      Has(text, "```diff\n--- turn 1\n+++ turn 2\n@@ -1,3 +1,3 @@\n-// measured 2\n+// measured 1\n extern"));
  turns[1].evaluation.source = std::string(3000, '+') + "\n";  // another kernel altogether
  CHECK_FALSE(Has(AsText(BuildMessages(f.context, turns)), "```diff"));
}

TEST_CASE("cache points: what comes before them comes again") {
  ConversationFixture f;
  std::vector<TurnRecord> turns;
  std::vector<Message> before = BuildMessages(f.context, turns);
  for (int number = 1; number <= 5; ++number) {
    const bool is_correct = number == 2 || number == 3;
    turns.push_back(Turn(number, is_correct ? "measured 1.3" : "wrong",
                         is_correct ? std::optional(1.3) : std::nullopt, "Summary."));
    const std::vector<Message> now = BuildMessages(f.context, turns);
    CHECK(now[0].content == before[0].content);
    CHECK(now[0].cache_points == std::vector<size_t>{now[0].content.size()});
    REQUIRE(now[1].cache_points.size() == (number < 2 ? 1 : 2));  // the rules; the best kernel
    const size_t last = before[1].cache_points.back();
    CHECK(now[1].content.substr(0, last) == before[1].content.substr(0, last));
    CHECK(last > before[1].content.size() / 4);
    before = now;
  }
}

TEST_CASE("prompts are counted as the server counted earlier ones, when that is more") {
  ConversationFixture f;
  std::vector<TurnRecord> turns = LongEpisode(6);
  for (TurnRecord& turn : turns) turn.messages = {{"user", std::string(4000, 'x')}};
  const std::vector<Message> whole = BuildMessages(f.context, turns);
  CHECK(PromptTokens(whole, {}) == PromptTokens(whole, turns));
  f.context.prompt_token_budget = PromptTokens(whole, turns);
  const std::string by_estimate = AsText(BuildMessages(f.context, turns));
  turns[3].usage.prompt_tokens = 900;  // fewer than estimated: the estimate stays
  CHECK(AsText(BuildMessages(f.context, turns)) == by_estimate);
  turns[4].usage.prompt_tokens = 1500;  // 1.5 times the estimate
  CHECK(AsText(BuildMessages(f.context, turns)).size() < by_estimate.size());
}

}  // namespace kevin
