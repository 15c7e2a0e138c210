// Likeness of stages and programs, and settings taken over from related problems.

#include "policies/search/resemble.h"

#include "policies/search/task_program.h"
#include "tests/catch.h"
#include "tests/support/graph_text.h"

using namespace kevin;
using namespace kevin::search;
using namespace kevin::test;

namespace {

// One elementwise operation on a vector.
TaskProgram Unary(const std::string& op, int64_t size) {
  const Request request = GraphRequest({{"x", {size}}}, {{op, R"({"self":{"tensor":0}})", {size}}});
  return ProgramsOf(request.task).at(0);
}

TaskProgram Softmax(int64_t rows, int64_t columns) {
  const Request request =
      GraphRequest({{"x", {rows, columns}}},
                   {{"softmax", R"({"self":{"tensor":0},"dim":1,"dtype":null})", {rows, columns}}});
  return ProgramsOf(request.task).at(0);
}

double Likeness(const TaskProgram& a, const TaskProgram& b) {
  return search::Likeness(TraitsOf(a.program, SharesByCounts(a)), TraitsOf(b.program, SharesByCounts(b)));
}

std::string FormOf(const TaskProgram& at) { return StageForm(at.program, *LeafStages(at.program).at(0)); }

}  // namespace

TEST_CASE("equal programs are alike in full, and nearness falls with operations, sizes and kinds") {
  CHECK(Likeness(Unary("relu", 4096), Unary("relu", 4096)) == 1);
  const double other_size = Likeness(Unary("relu", 4096), Unary("relu", 65536));
  const double other_op = Likeness(Unary("relu", 4096), Unary("tanh", 4096));
  const double both = Likeness(Unary("relu", 4096), Unary("tanh", 65536));
  CHECK((other_size < 1 && other_size > 0.8));
  CHECK((other_op < 1 && other_op > both));
  CHECK(both > 0.2);
  CHECK(Likeness(Unary("relu", 4096), Softmax(64, 64)) == 0);  // a reduction is no pointwise stage
  CHECK(Likeness(Softmax(64, 64), Softmax(128, 64)) > other_op);
  CHECK(Likeness(Unary("relu", 64), Unary("tanh", 4096)) == Likeness(Unary("tanh", 4096), Unary("relu", 64)));
}

TEST_CASE("text that is no form resembles nothing") {
  const StageTraits form = TraitsOf(FormOf(Unary("relu", 64)));
  for (const char* text : {"", "x", "[:]", ":9999999999999999999999999"}) {
    CHECK(search::Likeness(TraitsOf(text), form) == 0);
    CHECK(search::Likeness(TraitsOf(text), TraitsOf(text)) == 0);
  }
}

TEST_CASE("the number of a stage is not part of a knob's name") {
  CHECK(WithoutStageNumber("TILE_3") == "TILE");
  CHECK(WithoutStageNumber("TILE_K_12") == "TILE_K");
  CHECK(WithoutStageNumber("TILE") == "TILE");
  CHECK(WithoutStageNumber("X2") == "X2");
  CHECK(WithoutStageNumber("_1") == "_1");
}

TEST_CASE("settings are taken over by name and role, to the nearest value that is offered") {
  const TaskProgram at = Unary("relu", 4096);
  const std::vector<Knob> knobs = {{"TILE_0", {64, 128, 8}, true, "elements of a tile", 0},
                                   {"EACH_0", {1, 2}, true, "packs of a thread", 0},
                                   {"WAY", {0, 1}, false, "the way", -1}};
  TaskRelated near;
  near.problem = "level1/21";
  near.nearness = 0.9;
  near.knobs = {{"TILE_5", "elements of a tile", FormOf(Unary("tanh", 4096))},
                {"TILE_6", "elements of a tile", FormOf(Softmax(8, 8))},
                {"EACH_5", "another role", FormOf(Unary("tanh", 4096))},
                {"WAY", "the way", ""}};
  near.results = {{{100, 8, 2, 1}, 2.0}, {{32, 8, 2, 1}, 1.0}, {{32, 8, 2, 0}, 0.5}};
  const Experience experience = ExperienceOf(at.program, knobs, {near});
  REQUIRE(experience.suggestions.size() == 1);
  // 100 is nearer to 128 than to 64; EACH has no counterpart of its role; WAY is known as it is.
  CHECK(experience.suggestions[0].setting == Setting{{"TILE_0", 128}, {"EACH_0", 1}, {"WAY", 1}});
  CHECK(experience.suggestions[0].origin == "level1/21 (90 % alike)");
  CHECK(experience.influence.at("TILE_0") == Approx(0.9 * std::log(2.0)));
  CHECK(experience.influence.at("WAY") == Approx(0.9 * std::log(2.0)));
  CHECK(experience.influence.count("EACH_0") == 0);
}

TEST_CASE("two suggestions at most, all different; a problem without a counterpart gives none") {
  const TaskProgram at = Unary("relu", 4096);
  const std::vector<Knob> knobs = {{"WAY", {0, 1, 2, 3}, false, "the way", -1}};
  std::vector<TaskRelated> related;
  for (const int64_t way : {3, 3, 1, 2}) {
    TaskRelated one;
    one.problem = "test/" + std::to_string(way);
    one.nearness = 0.8;
    one.knobs = {{"WAY", "the way", ""}};
    one.results = {{{way}, 1.5}};
    related.push_back(one);
  }
  related[0].knobs[0].name = "OTHER";
  const Experience experience = ExperienceOf(at.program, knobs, related);
  REQUIRE(experience.suggestions.size() == 2);
  CHECK(experience.suggestions[0].setting.at("WAY") == 3);
  CHECK(experience.suggestions[1].setting.at("WAY") == 1);
  CHECK(ExperienceOf(at.program, knobs, {}).suggestions.empty());
}
