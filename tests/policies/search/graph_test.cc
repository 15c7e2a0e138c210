// Graphs that are no graphs: each is refused with the reason, and none ends the program.

#include "policies/search/graph.h"

#include "tests/catch.h"
#include "tests/support/graph_text.h"

using namespace kevin;
using namespace kevin::test;

namespace {

// The message; empty where it is accepted.
std::string ParseFailure(const std::string& text) {
  try {
    search::ParseGraph(text);
    return "";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return error.what();
  }
}

std::string ReluText() { return GraphText({{"x", {4, 8}}}, ReluSteps({4, 8})); }

// ReluText with one part replaced.
std::string With(const std::string& from, const std::string& to) {
  std::string text = ReluText();
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// x of 4 numbers; y = x; 5 times: y = relu(y), all kept.
constexpr const char* kLoop =
    R"({"version":1,"inputs":[{"name":"x","value":0}],
        "values":[{"dtype":"float32","shape":[4]},{"dtype":"float32","shape":[4]},{"dtype":"float32","shape":[4]},
                  {"dtype":"float32","shape":[4]},{"dtype":"float32","shape":[5,4]}],
        "nodes":[{"op":"loop","args":{"trip":5},"carried":[[0,1,2,3]],"stacked":[[2,4]],
                  "body":[{"op":"relu","args":{"self":{"tensor":1}},"results":[2]}],"results":[3,4]}],
        "outputs":[4]})";

std::string LoopWith(const std::string& from, const std::string& to) {
  std::string text = kLoop;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

struct BadGraph {
  std::string text, reason;
};

}  // namespace

TEST_CASE("a graph is read as it stands") {
  const search::Graph graph = search::ParseGraph(ReluText());
  REQUIRE(graph.nodes.size() == 1);
  CHECK(graph.nodes[0].op == "relu");
  CHECK(graph.nodes[0].results == std::vector<int>{1});
  CHECK(graph.inputs.at(0).name == "x");
  CHECK(graph.values.at(1).shape == std::vector<int64_t>{4, 8});
  CHECK(graph.outputs == std::vector<int>{1});
  // Brackets in a text are no lists.
  const std::string name = std::string(100, '[') + "\\\"{";
  CHECK(search::ParseGraph(With(R"("name":"x")", R"("name":")" + name + "\"")).inputs.at(0).name ==
        std::string(100, '[') + "\"{");
  const search::Graph loop = search::ParseGraph(kLoop);
  CHECK(loop.nodes.at(0).carried.at(0) == std::array<int, 4>{0, 1, 2, 3});
  CHECK(loop.nodes.at(0).stacked.at(0) == std::array<int, 2>{2, 4});
}

TEST_CASE("a bad graph is refused with what is wrong with it") {
  const std::vector<BadGraph> bad = {
      {"", "no JSON"},
      {"nonsense", "no JSON"},
      {ReluText().substr(0, 60), "no JSON"},
      {"{}", "`version` is missing"},
      {"[1,2]", "`version` is missing"},
      {With(R"("version":1)", R"("version":2)"), "another format"},
      {With(R"("nodes":)", R"("knots":)"), "`nodes` is missing"},
      {With("[4,8]", "[4,-8]"), "a size is no number"},
      {With("[4,8]", "[4,0.5]"), "a size is no number"},
      {With("[4,8]", "[4611686018427387904,8]"), "too large"},
      {With("[4,8]", "4"), "`shape` is no list"},
      {With("float32", "float7"), "no dtype float7"},
      {With(R"("tensor":0)", R"("tensor":1)"), "used before it is made"},
      {With(R"("tensor":0)", R"("tensor":17)"), "no value 17"},
      {With(R"("tensor":0)", R"("tensor":-1)"), "no value -1"},
      {With(R"("tensor":0)", R"("tensor":"0")"), "no value"},
      {With(R"({"tensor":0})", R"({"tensors":0})"), "no list"},
      {With(R"({"tensor":0})", R"({"float":"big"})"), "no number"},
      {With(R"({"tensor":0})", R"({"base":1,"step":1})"), "unknown form"},
      {With(R"({"tensor":0})", "[[[[[[1]]]]]]"), "too long"},
      {With(R"("results":[1])", R"("results":[0])"), "made twice"},
      {With(R"("results":[1])", R"("results":[2])"), "no value 2"},
      {With(R"("outputs":[1])", R"("outputs":[5])"), "no value 5"},
      {With(R"({"self":{"tensor":0}})", "[]"), "no object"},
      {std::string(200, '[') + std::string(200, ']'), "nested too deeply"},
      {LoopWith(R"("trip":5)", R"("trip":0)"), "no number of iterations"},
      {LoopWith(R"("trip":5)", R"("trip":9000000000)"), "no number of iterations"},
      {LoopWith("[[0,1,2,3]]", "[[0,1,2]]"), "no list of four"},
      {LoopWith("[[0,1,2,3]]", "[[0,null,2,3]]"), "no start"},
      {LoopWith("[[2,4]]", "[[2,3]]"), "another shape"},
      {LoopWith("[5,4]", "[6,4]"), "another shape"},
      {LoopWith(R"("outputs":[4])", R"("outputs":[2])"), "used before it is made"},
      {LoopWith(R"("op":"relu")", R"("op":"loop")"), "a loop is in a loop"}};
  for (const BadGraph& one : bad) {
    const std::string failure = ParseFailure(one.text);
    INFO(one.text << "\n" << failure);
    CHECK(failure.find(one.reason) != std::string::npos);
    CHECK(failure.find("the graph of the reference is not valid") != std::string::npos);
  }
}
