// KernelBench's `Model` in problem files: reading, errors, hashes, and the facts of all problems against each other.

#include "env/problem/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "env/error.h"
#include "env/problem/problem.h"
#include "env/problem/text.h"
#include "tests/catch.h"

namespace kevin {
namespace {

const char* const kProblem = R"(id = "mine/1"
name = "Linear, dropout"
families = ["matmul"]
reference = '''
def forward(x, noise, weight, bias):
    return torch.linear(x, weight, bias) * noise
'''
[sizes.full]
B = 40
K = 80
N = 60
[sizes.small]
B = 4
K = 8
N = 6

[[inputs]]
name = "x"
shape = ["B", "K"]

[[inputs]]
name = "noise"
shape = ["B", "N"]

[[inputs]]
name = "weight"
shape = ["N", "K"]
role = "param"

[[inputs]]
name = "bias"
shape = ["N"]
role = "param"

[[outputs]]
name = "out"
shape = ["B", "N"]

[cost]
flops = "2*B*N*K"
bytes = "4*B*K"
min_flops = 0
min_bytes = "4*B*K"
)";

const char* const kModel = R"(
[model]
arguments = ["in_features", "out_features", "scale", "shape", "widths", "has_bias"]
init = ["K", "N", 2.0, ["N", 1], {list = ["2*N", 3]}, true]
forward = ["x", 3.14, 2]
sizes = ["small"]
unused = ["fc.bias"]
parameters = {weight = "linear.weight", bias = "linear.bias"}
)";

Problem Parse(const std::string& model) { return ParseProblem(kProblem + model, "my.toml"); }

std::string With(const std::string& from, const std::string& to) {
  std::string text = kModel;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string Message(const std::string& model) {
  try {
    Parse(model);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK_FALSE(error.next_step().empty());
    return error.what();
  }
  return "";
}

// The shape of an input at a size; empty: there is no such input.
std::vector<int64_t> ShapeOf(const SizedProblem& sized, const std::string& name) {
  for (const ConcreteTensor& input : sized.inputs) {
    if (input.spec.name == name) return input.shape;
  }
  return {};
}

TEST_CASE("the table [model] says how KernelBench's Model is made and called") {
  const Problem problem = Parse(kModel);
  REQUIRE(problem.model);
  const ModelFacts& facts = *problem.model;
  CHECK(PythonInit(facts, problem.sizes.at("full")) == "[80, 60, 2.0, (60, 1), [120, 3], True]");
  CHECK(PythonInit(facts, problem.sizes.at("small")) == "[8, 6, 2.0, (6, 1), [12, 3], True]");
  CHECK(facts.arguments.size() == 6);
  REQUIRE(facts.forward.size() == 3);
  CHECK(PythonText(facts.forward[0], {}) == "x");
  CHECK(PythonText(facts.forward[1], {}) == "3.14");
  CHECK(PythonText(facts.forward[2], {}) == "2");
  CHECK(facts.drawn == std::vector<std::string>{"noise"});
  CHECK(facts.parameters ==
        std::map<std::string, std::string>{{"weight", "linear.weight"}, {"bias", "linear.bias"}});
  CHECK(facts.unused == std::vector<std::string>{"fc.bias"});
  CHECK(ModelFitsSize(problem, "small"));
  CHECK_FALSE(ModelFitsSize(problem, "full"));
  CHECK_FALSE(Parse("").model);
  CHECK_FALSE(ModelFitsSize(Parse(""), "small"));
}

TEST_CASE("the size of KernelBench's first shapes is `v0`, or the one that has kept them") {
  const std::string first = With("sizes = [", "first_shapes = \"full\"\nsizes = [");
  CHECK(SizeOfFirstShapes(Parse("")).empty());
  CHECK(SizeOfFirstShapes(Parse(kModel)).empty());
  CHECK(SizeOfFirstShapes(Parse(first)) == "full");
  // A verdict does not depend on it: the size is a part of its key.
  CHECK(HashFor(Parse(first), "modelnew") == HashFor(Parse(kModel), "modelnew"));
  CHECK(Parse(first).content_hash == Parse(kModel).content_hash);
  const std::string v0 = std::string(kProblem) + "[sizes.v0]\nB = 2\nK = 8\nN = 6\n";
  CHECK(SizeOfFirstShapes(ParseProblem(v0 + kModel, "my.toml")) == "v0");
  CHECK(Message(With("sizes = [", "first_shapes = \"tiny\"\nsizes = [")) ==
        "my.toml:49: model.first_shapes: there is no size 'tiny'");
  CHECK_THROWS_WITH(ParseProblem(v0 + first, "my.toml"),
                    Catch::Contains("model.first_shapes: there is a size 'v0' too"));
  const ProblemSet problems;
  CHECK(SizeOfFirstShapes(problems.Find("level1/19")) == "v0");
  CHECK(SizeOfFirstShapes(problems.Find("level3/20")) == "full");
  CHECK(SizeOfFirstShapes(problems.Find("level1/86")).empty());  // another padding
}

TEST_CASE("without `forward` the model takes the inputs in order, and without `sizes` all sizes fit") {
  const Problem problem = Parse("[model]\ninit = []\n[model.parameters]\nweight = \"w\"\nbias = \"a.0.b\"\n");
  REQUIRE(problem.model->forward.size() == 2);
  CHECK(problem.model->forward[1].text == "noise");
  CHECK(problem.model->drawn.empty());
  CHECK(ModelFitsSize(problem, "full"));
  CHECK(PythonInit(*problem.model, {}) == "[]");
}

TEST_CASE("values are written as Python reads them") {
  const auto number = [](double value) {
    return PythonText({ModelValue::Form::kFloat, "", value, false, {}}, {});
  };
  CHECK(number(1) == "1.0");
  CHECK(number(-0.5) == "-0.5");
  CHECK(number(1e-5) == "1e-05");
  CHECK(number(1e300) == "1e+300");
  const ModelValue one{ModelValue::Form::kInteger, "N - 1", 0, false, {}};
  CHECK(PythonText({ModelValue::Form::kTuple, "", 0, false, {one}}, {{"N", 5}}) == "(4,)");
  CHECK(PythonText({ModelValue::Form::kTuple, "", 0, false, {}}, {}) == "()");
}

TEST_CASE("facts about the model keep the hash of the problem") {
  const Problem without = Parse("");
  const Problem with = Parse(kModel);
  const Problem other = Parse(With("\"N\", 2.0", "\"K\", 2.0"));
  CHECK(without.content_hash == Sha256Hex(kProblem));
  CHECK(with.content_hash == without.content_hash);
  CHECK(with.text.size() > without.text.size());
  for (const char* kind : {"cpp", "cuda", "ptx"}) CHECK(HashFor(with, kind) == with.content_hash);
  CHECK(HashFor(without, "modelnew") == without.content_hash);
  std::set<std::string> hashes = {with.content_hash, HashFor(with, "modelnew"), HashFor(other, "modelnew")};
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"2.0", "2"},
                                                        {"true", "false"},
                                                        {"3.14", "3.15"},
                                                        {"{list = [\"2*N\", 3]}", "[\"2*N\", 3]"},
                                                        {"linear.weight", "gemm.weight"},
                                                        {"fc.bias", "fc.b"},
                                                        {"[\"small\"]", "[\"full\"]"}}) {
    CHECK(hashes.insert(HashFor(Parse(With(from, to)), "modelnew")).second);
  }
  CHECK(hashes.size() == 10);
  CHECK(HashFor(with, "triton") == HashFor(with, "modelnew"));
  CHECK(HashFor(Parse(With("in_features", "inputs")), "modelnew") == HashFor(with, "modelnew"));
}

TEST_CASE("tables behind [model] are hashed, and its parts stand together") {
  for (const char* more : {"[check]\nreduction = 2\n", "[sizes.other]\nB = 1\nK = 1\nN = 1\n",
                           "[[sizes.mine]]\nB = 1\nK = 1\nN = 1\n\n[[sizes.mine]]\nB = 2\nK = 1\nN = 1\n"}) {
    const std::string without = Sha256Hex(kProblem + std::string("\n") + more);
    CHECK(Parse(kModel + std::string(more)).content_hash == without);
    CHECK(Parse(kModel + std::string("\n") + more).content_hash == without);
  }
  const char* const parameters = "[model.parameters]\nweight = \"w\"\nbias = \"b\"\n";
  const std::string header = "[model]\ninit = []\n", check = "[check]\nreduction = 2\n";
  CHECK(Message(parameters + header) == "my.toml:47: model: has parts before it or behind other tables");
  CHECK(Message(header + check + parameters) ==
        "my.toml:44: model: has parts before it or behind other tables");
  CHECK(Parse(header + parameters + check).content_hash == Sha256Hex(kProblem + check));
  try {
    std::string text = kProblem;
    text.insert(text.find("[sizes.full]"),
                "model = {init = [], parameters = {weight = \"w\", bias = \"b\"}}\n");
    ParseProblem(text, "my.toml");
    FAIL("an inline table was read");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "my.toml:8: model: is not written as a table of its own");
  }
}

TEST_CASE("errors name the place and the reason") {
  CHECK(Message(With("init", "inits")) == "my.toml:47: model.inits: unknown key");
  CHECK(Message("[model]\nparameters = {}\n") == "my.toml:44: model.init: missing key");
  CHECK(Message(With("\"K\", \"N\"", "\"M\", \"N\"")) ==
        "my.toml:47: model.init: unknown symbol 'M' (sizes define B, K, N)");
  CHECK(Message(With("2.0", "nan")) == "my.toml:47: model.init: must be finite");
  CHECK(Message(With("{list =", "{lists =")) == "my.toml:47: model.init: is no list");
  CHECK(
      Message(With("2.0", "1979-05-27")) ==
      "my.toml:47: model.init: must be a number, true or false, an expression in quotes or an array, not a date "
      "or time");
  CHECK(Message(With("2.0", "[[[[[[1]]]]]]")) == "my.toml:47: model.init: is nested too deeply or too long");
  CHECK(Message(With("\"scale\", ", "")) == "my.toml:46: model.arguments: 5 names for 6 values of init");
  CHECK(Message(With("\"scale\"", "\"shape\"")) == "my.toml:46: model.arguments: 'shape' is used twice");
  CHECK(Message(With("[\"x\", 3.14", "[\"x\", \"x\"")) == "my.toml:48: model.forward: has 'x' twice");
  CHECK(Message(With("[\"x\", 3.14", "[\"weight\"")) ==
        "my.toml:48: model.forward: unknown symbol 'weight' (sizes define B, K, N)");
  CHECK(Message(With("[\"small\"]", "[\"tiny\"]")) == "my.toml:49: model.sizes: there is no size 'tiny'");
  CHECK(Message(With("[\"small\"]", "[]")) == "my.toml:49: model.sizes: must not be empty");
  CHECK(Message(With("\"fc.bias\"", "\"linear.bias\"")) ==
        "my.toml:50: model.unused: 'linear.bias' is used twice");
  CHECK(Message(With("linear.bias", "linear.weight")).find("'linear.weight' is used twice") !=
        std::string::npos);
  CHECK(Message(With(", bias = \"linear.bias\"", "")) ==
        "my.toml:45: model: the parameter 'bias' has no name in the model");
  CHECK(Message(With("bias = \"l", "x = \"l")) ==
        "my.toml:51: model.parameters.x: is no parameter of this problem");
  for (const char* name : {"linear..bias", ".bias", "bias.", "1.bias", "linear bias", "a\\nb", "f()"})
    CHECK(
        Message(With("\"linear.bias\"", fmt::format("\"{}\"", name))).find("is no name of a state_dict()") !=
        std::string::npos);
}

// --- The facts of KernelBench's problems against each other ---

// The values of KernelBench's argument names at a size: tuples of integers and single integers.
std::map<std::string, std::vector<int64_t>> Integers(const ModelFacts& facts, const Symbols& symbols) {
  std::map<std::string, std::vector<int64_t>> values;
  for (size_t i = 0; i < facts.arguments.size(); ++i) {
    const ModelValue& value = facts.init[i];
    std::vector<int64_t>& list = values[facts.arguments[i]];
    if (value.form == ModelValue::Form::kInteger) list = {EvaluateExpression(value.text, symbols)};
    for (const ModelValue& item : value.items) {
      if (item.form == ModelValue::Form::kInteger) list.push_back(EvaluateExpression(item.text, symbols));
    }
  }
  return values;
}

// The shape that `in_features` and `out_features`, or `in_channels`, `out_channels` and `kernel_size`, give to a layer's
// weight of this rank; empty where the arguments do not say.
std::vector<int64_t> DerivedShape(const std::map<std::string, std::vector<int64_t>>& values,
                                  const std::string& state, size_t rank, bool is_convolution) {
  const auto get = [&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() || found->second.empty() ? std::vector<int64_t>{} : found->second;
  };
  const auto in_features = get("in_features"), out_features = get("out_features");
  if (rank == 2 && !in_features.empty() && !out_features.empty()) return {out_features[0], in_features[0]};
  const auto in = get("in_channels"), out = get("out_channels"), kernel = get("kernel_size");
  if (rank < 3 || in.empty() || out.empty() || kernel.empty() || !values.contains("kernel_size")) return {};
  // Elsewhere the groups are those of a norm.
  const int64_t parts = is_convolution && !get("groups").empty() ? get("groups")[0] : 1;
  const bool is_transposed = state.find("transpose") != std::string::npos;
  std::vector<int64_t> shape = is_transposed ? std::vector<int64_t>{in[0], out[0] / parts}
                                             : std::vector<int64_t>{out[0], in[0] / parts};
  for (size_t i = 2; i < rank; ++i) shape.push_back(kernel.size() == 1 ? kernel[0] : kernel.at(i - 2));
  return shape;
}

TEST_CASE(
    "every problem of KernelBench has facts, and shapes agree with the arguments where they give them") {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  // A kernel of 3 x 3 x 1 that is asked for as 3, and a convolution that is depthwise without an argument for it.
  const std::set<std::string> exceptions = {"level1/59", "level1/84"};
  int with_facts = 0, derived = 0, at_all_sizes = 0;
  size_t parameters = 0;
  for (const std::string& id : problems.Ids()) {
    if (!id.starts_with("level")) continue;
    const Problem problem = problems.Find(id);
    INFO(id);
    REQUIRE(problem.model);
    const ModelFacts& facts = *problem.model;
    ++with_facts;
    at_all_sizes += facts.sizes.empty();
    parameters += facts.parameters.size();
    CHECK(facts.arguments.size() == facts.init.size());
    CHECK(ModelFitsSize(problem, "full"));
    for (const auto& [size, symbols] : problem.sizes) {
      if (!ModelFitsSize(problem, size)) continue;
      const SizedProblem sized = AtSize(problem, size);
      const auto values = Integers(facts, symbols);
      for (const auto& [name, state] : facts.parameters) {
        // A layer that is the only one of its kind in the model: its arguments are the model's.
        const bool is_layer = !exceptions.contains(id) && state.ends_with(".weight") &&
                              std::count(state.begin(), state.end(), '.') == 1 &&
                              (state.starts_with("conv") || state.starts_with("gemm") ||
                               state.starts_with("linear.") || state.starts_with("matmul."));
        const std::vector<int64_t> shape = ShapeOf(sized, name);
        const std::vector<int64_t> expected =
            is_layer && !id.starts_with("level3")
                ? DerivedShape(values, state, shape.size(), id.starts_with("level1"))
                : std::vector<int64_t>{};
        if (!expected.empty()) {
          INFO(size << ' ' << name << " = " << state);
          CHECK(shape == expected);
          ++derived;
        }
        const auto own = values.find(state + "_shape");  // bias_shape gives `bias`
        if (own != values.end()) {
          CHECK(shape == own->second);
          ++derived;
        }
      }
    }
  }
  CHECK(with_facts == 250);
  CHECK(at_all_sizes == 232);
  CHECK(parameters == 3164);
  CHECK(derived > 300);
}

}  // namespace
}  // namespace kevin
