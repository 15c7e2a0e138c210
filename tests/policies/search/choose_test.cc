// The choice of settings, and the lines that carry them.

#include "policies/search/choose.h"

#include <set>

#include "tests/catch.h"
#include "tests/support/reply.h"

using namespace kevin;
using namespace kevin::search;

namespace {

const std::vector<Knob> kToyKnobs = {{"A", {1, 2, 3}, false, "first"}, {"B", {10, 20}, true, "second"}};

const std::string kBody = "int y = A + B;\n";

std::string TextWith(int64_t a, int64_t b) { return KnobLines(kToyKnobs, {{"A", a}, {"B", b}}, 0, kBody); }

Choice NextChoice(const std::vector<Knob>& knobs, const Task& task, uint64_t seed, bool in_text = false) {
  Guidance guidance;
  guidance.searches_in_text = in_text;
  return ChooseNext(knobs, ReadAttempts(knobs, task.attempts), guidance, seed);
}

}  // namespace

TEST_CASE("no setting of a text comes twice; once all were tried, the choice is not new") {
  for (const uint64_t seed : {0u, 3u, 77u}) {
    Task task;
    std::set<Setting> seen;
    for (int turn = 0; turn < 6; ++turn) {
      const Choice choice = NextChoice(kToyKnobs, task, seed);
      CHECK(choice.is_new);
      CHECK(seen.insert(choice.setting).second);
      test::AddAttempt(task, KnobLines(kToyKnobs, choice.setting, 0, kBody), "measured", 1.0 + 0.1 * turn);
    }
    const Choice again = NextChoice(kToyKnobs, task, seed);
    CHECK_FALSE(again.is_new);
    CHECK(KnobLines(kToyKnobs, again.setting, 0, kBody) == task.attempts.back().source);
  }
}

TEST_CASE("a text without knobs is new once") {
  Task task;
  CHECK(NextChoice({}, task, 1).is_new);
  test::AddAttempt(task, KnobLines({}, {}, 8, kBody), "measured", 1.5);
  CHECK_FALSE(NextChoice({}, task, 1).is_new);
  task.attempts[0].outcome = "wrong";
  CHECK_FALSE(NextChoice({}, task, 1).is_new);
}

TEST_CASE("the first setting has the first values, and later ones are a step from the fastest") {
  Task task;
  CHECK(NextChoice(kToyKnobs, task, 9).setting == Setting{{"A", 1}, {"B", 10}});
  test::AddAttempt(task, TextWith(1, 10), "measured", 1.0);
  test::AddAttempt(task, TextWith(3, 20), "measured", 2.0);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Choice next = NextChoice(kToyKnobs, task, seed);
    CHECK((next.setting.at("A") != 3) + (next.setting.at("B") != 20) == 1);
    CHECK(next.reason.find("2.000x") != std::string::npos);
    CHECK(next.changed.find("instead of") != std::string::npos);
  }
}

TEST_CASE("values seen only in failures come last") {
  Task task;
  test::AddAttempt(task, TextWith(1, 10), "measured", 1.0);
  test::AddAttempt(task, TextWith(2, 10), "wrong", 0);
  for (uint64_t seed = 0; seed < 20; ++seed) CHECK(NextChoice(kToyKnobs, task, seed).setting.at("A") != 2);
}

TEST_CASE("knobs of the text come last where the environment moves them") {
  Task task;
  test::AddAttempt(task, TextWith(1, 10), "measured", 1.0);
  for (uint64_t seed = 0; seed < 20; ++seed)
    CHECK(NextChoice(kToyKnobs, task, seed, true).setting.at("B") == 10);
}

TEST_CASE("trials of the environment count as measurements of their settings") {
  Task task;
  test::AddAttempt(task, TextWith(1, 20), "measured", 2.0);
  task.attempts[0].trials = {{{{"B", 20}}, "measured", "", 10.0, false, true, 0.1},
                             {{{"B", 10}}, "measured", "", 20.0, false, false, 0.1},
                             {{{"C", 1}}, "measured", "", 5.0, false, false, 0.1},
                             {{{"B", 11}}, "measured", "", 5.0, false, false, 0.1}};
  const std::vector<Tried> tried = ReadAttempts(kToyKnobs, task.attempts);
  REQUIRE(tried.size() == 2);  // of known knobs and values
  CHECK(tried[0].was_text);
  CHECK_FALSE(tried[1].was_text);
  CHECK(tried[1].setting == Setting{{"A", 1}, {"B", 10}});
  CHECK(tried[1].speedup.value() == Approx(1.0));
}

TEST_CASE("settings are read back from a text, and only for the same knobs") {
  const auto read = [](const std::string& source) {
    Task task;
    test::AddAttempt(task, source, "measured", 1.5);
    const std::vector<Tried> tried = ReadAttempts(kToyKnobs, task.attempts);
    return tried.empty() ? Setting{} : tried.at(0).setting;
  };
  const std::string lines = TextWith(2, 20);
  CHECK(lines == "// search: A=2 B=20\nconstexpr int B = 20;  // second\n");
  CHECK(read("#include <x>\n" + lines + "int x;") == Setting{{"A", 2}, {"B", 20}});
  // The environment puts a constant in the place of a line that declares values.
  CHECK(read("// search: A=2 B=20\nconstexpr int B = 10;\n") == Setting{{"A", 2}, {"B", 10}});
  for (const char* other : {"// search: A=2\n", "// search: A=9 B=10\n", "// search: C=1\n", "int x;", ""})
    CHECK(read(other).empty());
}

TEST_CASE("lines declare knobs with the setting's value first, as many as are wanted") {
  const Setting setting = {{"A", 1}, {"B", 20}};
  CHECK(KnobLines(kToyKnobs, setting, 8, kBody) == "// search: A=1 B=20\n// knob B: 20 10\n");
  CHECK(KnobLines({}, {}, 8, kBody) == "// search: no knobs\n");
}

TEST_CASE("a knob of the text that the text does not mention has no line") {
  const Setting setting = {{"A", 1}, {"B", 20}};
  CHECK(KnobLines(kToyKnobs, setting, 8, "int y = AB + B_1;") == "// search: A=1 B=20\n");
  CHECK(KnobLines(kToyKnobs, setting, 0, "int y = B;") ==
        "// search: A=1 B=20\nconstexpr int B = 20;  // second\n");
}

TEST_CASE("texts that differ in the record of their setting alone are one text") {
  const std::string declared = "// search: A=1 B=20\n// knob B: 20 10\nint x;\n";
  CHECK(TextWithoutRecord(declared) == "constexpr int B = 20\nint x;\n");
  CHECK(TextWithoutRecord("// search: A=2 B=20\nconstexpr int B = 20;  // second\nint x;") ==
        TextWithoutRecord(declared));
  CHECK(TextWithoutRecord("// search: A=1 B=10\n// knob B: 10 20\nint x;\n") != TextWithoutRecord(declared));
}

TEST_CASE("knobs of the stage with most of the time are moved first") {
  const std::vector<Knob> knobs = {{"A", {1, 2}, false, "first", 0}, {"B", {1, 2}, false, "second", 1}};
  Task task;
  test::AddAttempt(task, KnobLines(knobs, {{"A", 1}, {"B", 1}}, 0, ""), "measured", 1.0);
  const std::vector<Tried> tried = ReadAttempts(knobs, task.attempts);
  Guidance guidance;
  guidance.stages = {"relu", "matmul"};
  guidance.shares = {0.1, 0.9};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Choice next = ChooseNext(knobs, tried, guidance, seed);
    CHECK(next.setting.at("B") == 2);
    CHECK(next.changed.find("`matmul`, which takes 90 % of the time by its counts of work") !=
          std::string::npos);
  }
  guidance.shares = {0.9, 0.1};
  for (uint64_t seed = 0; seed < 20; ++seed)
    CHECK(ChooseNext(knobs, tried, guidance, seed).setting.at("A") == 2);
}

TEST_CASE("results correct the shares by counts: what a move changed, and moves without effect") {
  const std::vector<Knob> knobs = {{"A", {1, 2, 3}, false, "first", 0}, {"B", {1, 2, 3}, false, "second", 1}};
  std::vector<Tried> tried = {{{{"A", 1}, {"B", 1}}, 1.0, true}, {{{"A", 1}, {"B", 2}}, 2.0, true}};
  CHECK(SharesByResults(knobs, tried, {0.9, 0.1})[1] == Approx(0.5));  // halving the time takes half of it
  CHECK(SharesByResults(knobs, tried, {0.9, 0.1})[0] == Approx(0.9));
  tried.push_back({{{"A", 2}, {"B", 2}}, 2.001, false});
  CHECK(SharesByResults(knobs, tried, {0.9, 0.1})[0] == Approx(0.63));
  tried.push_back({{{"A", 3}, {"B", 2}}, std::nullopt, false});  // a failure says nothing of the time
  CHECK(SharesByResults(knobs, tried, {0.9, 0.1})[0] == Approx(0.63));
  // Then the other stage's knob goes on, although its stage is small by counts.
  Guidance guidance;
  guidance.shares = {0.9, 0.1};
  guidance.stages = {"relu", "matmul"};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Choice next = ChooseNext(knobs, tried, guidance, seed);
    CHECK((next.setting.at("B") == 3 && next.setting.at("A") == 1));
    CHECK(next.changed.find("alone it has changed the time by 100 %") != std::string::npos);
  }
}

TEST_CASE("settings of similar problems come first, then the first values, then moves") {
  Guidance guidance;
  guidance.experience.suggestions = {{{{"A", 3}, {"B", 20}}, "level1/21 (91 % alike)"},
                                     {{{"A", 1}, {"B", 10}}, "level1/22 (80 % alike)"}};
  Task task;
  const auto next = [&] {
    return ChooseNext(kToyKnobs, ReadAttempts(kToyKnobs, task.attempts), guidance, 5);
  };
  const Choice first = next();
  CHECK(first.setting == Setting{{"A", 3}, {"B", 20}});
  CHECK(
      first.changed ==
      "Against the first values: A (first) 3 instead of 1, B (second) 20 instead of 10. It was the fastest on "
      "level1/21 (91 % alike).");
  test::AddAttempt(task, TextWith(3, 20), "wrong", 0);
  CHECK(next().setting == Setting{{"A", 1}, {"B", 10}});  // the second one, which is also the first values
  test::AddAttempt(task, TextWith(1, 10), "measured", 1.0);
  const Choice third = next();
  CHECK((third.setting.at("A") != 1) + (third.setting.at("B") != 10) == 1);
}

TEST_CASE("what mattered on similar problems is moved first") {
  const std::vector<Knob> knobs = {{"A", {1, 2}, false, "first"}, {"B", {1, 2}, false, "second"}};
  Task task;
  test::AddAttempt(task, KnobLines(knobs, {{"A", 1}, {"B", 1}}, 0, ""), "measured", 1.0);
  Guidance guidance;
  guidance.experience.influence = {{"B", 0.4}};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Choice next = ChooseNext(knobs, ReadAttempts(knobs, task.attempts), guidance, seed);
    CHECK(next.setting.at("B") == 2);
    CHECK(next.changed.find("on similar problems it changed the time by 49 %") != std::string::npos);
  }
}

TEST_CASE("every setting gets its turn, also those with values that were slow alone") {
  const std::vector<Knob> knobs = {{"A", {1, 2, 3}, false, "first"}, {"B", {1, 2, 3}, false, "second"}};
  Task task;
  std::set<Setting> seen;
  for (int turn = 0; turn < 9; ++turn) {
    const Choice choice = NextChoice(knobs, task, 3);
    INFO(turn);
    CHECK(choice.is_new);
    CHECK(seen.insert(choice.setting).second);
    const double speedup = choice.setting.at("A") == 1 && choice.setting.at("B") == 1 ? 1.0 : 0.5;
    test::AddAttempt(task, KnobLines(knobs, choice.setting, 0, ""), "measured", speedup);
  }
  CHECK_FALSE(NextChoice(knobs, task, 3).is_new);
}
