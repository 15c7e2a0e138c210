// The choice of settings, and the lines that carry them.

#include "policies/search/choose.h"

#include <set>

#include "tests/catch.h"
#include "tests/support/reply.h"

using namespace kevin;
using namespace kevin::search;

namespace {

const std::vector<Knob> kToyKnobs = {{"A", {1, 2, 3}, false, "first"}, {"B", {10, 20}, true, "second"}};

std::string TextWith(int64_t a, int64_t b) { return KnobLines(kToyKnobs, {{"A", a}, {"B", b}}, 0); }

Choice NextChoice(const std::vector<Knob>& knobs, const Task& task, uint64_t seed, bool in_text = false) {
  return ChooseNext(knobs, ReadAttempts(knobs, task.attempts), {}, in_text, seed);
}

}  // namespace

TEST_CASE("no setting of a text comes twice until all were tried, then the fastest again") {
  for (const uint64_t seed : {0u, 3u, 77u}) {
    Task task;
    std::set<Setting> seen;
    for (int turn = 0; turn < 6; ++turn) {
      const Choice choice = NextChoice(kToyKnobs, task, seed);
      CHECK(choice.is_new);
      CHECK(seen.insert(choice.setting).second);
      test::AddAttempt(task, KnobLines(kToyKnobs, choice.setting, 0), "measured", 1.0 + 0.1 * turn);
    }
    const Choice again = NextChoice(kToyKnobs, task, seed);
    CHECK_FALSE(again.is_new);
    CHECK(KnobLines(kToyKnobs, again.setting, 0) == task.attempts.back().source);
  }
}

TEST_CASE("a text without knobs is proposed once, then again as what it is") {
  Task task;
  CHECK(NextChoice({}, task, 1).is_new);
  test::AddAttempt(task, KnobLines({}, {}, 8), "measured", 1.5);
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
  CHECK(KnobLines(kToyKnobs, setting, 8) == "// search: A=1 B=20\n// knob B: 20 10\n");
  CHECK(KnobLines({}, {}, 8) == "// search: no knobs\n");
}
