#include "env/reference/graph.h"

#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/problem/precision.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using nlohmann::json;

TensorSpec Tensor(const std::string& name, std::vector<std::string> shape, bool is_param = false) {
  TensorSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.is_param = is_param;
  return spec;
}

// x [B, N] and w [N]; B is 4 at "small", 40 at "full"; N is 8.
Problem ProblemWith(const std::string& reference) {
  Problem problem;
  problem.id = "mine";
  problem.reference = reference;
  problem.inputs = {Tensor("x", {"B", "N"}), Tensor("w", {"N"}, true)};
  problem.outputs = {Tensor("out", {"B", "N"})};
  problem.sizes = {{"small", {{"B", 4}, {"N", 8}}}, {"full", {{"B", 40}, {"N", 8}}}};
  problem.flops = problem.bytes = problem.min_flops = problem.min_bytes = "B*N";
  return problem;
}

json GraphOf(const std::string& reference, const std::string& size = "small") {
  return json::parse(ReferenceGraph(ProblemWith(reference), size));
}

// "select transpose add"
std::string Ops(const json& nodes) {
  std::string ops;
  for (const json& node : nodes) ops += (ops.empty() ? "" : " ") + node.at("op").get<std::string>();
  return ops;
}

// "" if there is a graph.
std::string Refusal(const std::string& reference) {
  try {
    GraphOf(reference);
    return "";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return error.what();
  }
}

bool Says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the graph of a reference is exact, compact and complete") {
  CHECK(
      ReferenceGraph(ProblemWith("def forward(x, w):\n    return torch.relu(x) * w + 0.5\n"), "small") ==
      R"({"version":1,"inputs":[{"name":"x","value":0},{"name":"w","value":1}],)"
      R"("values":[{"dtype":"float32","shape":[4,8]},{"dtype":"float32","shape":[8]},)"
      R"({"dtype":"float32","shape":[4,8]},{"dtype":"float32","shape":[4,8]},{"dtype":"float32","shape":[4,8]}],)"
      R"("nodes":[{"op":"relu","args":{"self":{"tensor":0}},"results":[2]},)"
      R"({"op":"mul","args":{"self":{"tensor":2},"other":{"tensor":1}},"results":[3]},)"
      R"({"op":"add","args":{"self":{"tensor":3},"other":0.5,"alpha":1},"results":[4]}],"outputs":[4]})");
}

TEST_CASE("helpers, dictionaries, lists, shapes and branches on numbers leave no trace") {
  Problem problem = ProblemWith(
      "def layer(x, p: Dict[str, Tensor], name: str, deep: bool):\n"
      "    y = x * p[name]\n"
      "    if deep:\n"
      "        y = layer2(y, x.size(0))\n"
      "    return y\n"
      "def layer2(x, n: int):\n"
      "    parts: List[Tensor] = []\n"
      "    for i in range(2):\n"
      "        parts.append(x[:, i * (n // 1):(i + 1) * n])\n"
      "    return torch.cat(parts, -1)\n"
      "def forward(x, p: Dict[str, Tensor]):\n"
      "    return layer(x, p, \"w\", x.size(1) == 8), x\n");
  problem.has_param_dict = true;
  problem.reference.replace(problem.reference.find("def layer("), 0, "");
  // A function must precede its callers.
  const size_t second = problem.reference.find("def layer2"), third = problem.reference.find("def forward");
  problem.reference = problem.reference.substr(second, third - second) + problem.reference.substr(0, second) +
                      problem.reference.substr(third);
  const json graph = json::parse(ReferenceGraph(problem, "small"));
  CHECK(Ops(graph["nodes"]) == "mul slice slice cat");
  CHECK(graph["nodes"][0]["args"]["other"]["tensor"] == 1);
  CHECK(graph["nodes"][1]["args"]["end"] == 4);
  CHECK(graph["nodes"][3]["args"]["tensors"]["tensors"].size() == 2);
  REQUIRE(graph["outputs"].size() == 2);
  CHECK(graph["outputs"][1] == 0);
}

TEST_CASE("numbers, dtypes and infinite values have forms of their own") {
  const json graph = GraphOf(
      "def forward(x, w):\n"
      "    y = torch.clamp(x, -float(\"inf\"), 1.0)\n"
      "    i = torch.arange(x.size(0), device=x.device).to(7)\n"
      "    return y.masked_fill(torch.ones([4, 8], dtype=11), 2.0), i, torch.tensor([1.5, 2.5])\n");
  const json& nodes = graph["nodes"];
  CHECK(nodes[0]["args"]["min"] == json{{"float", "-inf"}});
  CHECK(nodes[0]["args"]["max"].is_number_float());
  CHECK(Ops(nodes) == "clamp arange to ones masked_fill tensor");
  CHECK(nodes[2]["args"]["dtype"] == "float64");
  CHECK(graph["values"][nodes[1]["results"][0].get<int>()]["dtype"] == "int64");
  CHECK(nodes[3]["args"]["dtype"] == "bool");
  CHECK_FALSE(nodes[3]["args"].contains("device"));
  CHECK(nodes[5]["args"]["data"] == json{1.5, 2.5});
}

TEST_CASE("precision and size are those that were asked for") {
  const Problem problem =
      InPrecision(ProblemWith("def forward(x, w):\n    return torch.softmax(x, -1)\n"), Precision::kBf16);
  const json graph = json::parse(ReferenceGraph(problem, "full"));
  CHECK(graph["values"][2] == json{{"dtype", "bfloat16"}, {"shape", {40, 8}}});
}

TEST_CASE("operators in place become pure, through views too") {
  json graph = GraphOf("def forward(x, w):\n    y = x + w\n    torch.relu_(y)\n    return y * 2\n");
  CHECK(Ops(graph["nodes"]) == "add relu mul");
  CHECK(graph["nodes"][2]["args"]["self"]["tensor"] == graph["nodes"][1]["results"][0]);

  graph = GraphOf("def forward(x, w):\n    y = x + w\n    y[1:3, 2] = 7.0\n    return y\n");
  const json& nodes = graph["nodes"];
  CHECK(Says(Ops(nodes), "select_scatter slice_scatter"));
  CHECK(graph["outputs"][0] == nodes.back()["results"][0]);
  CHECK(nodes.back()["args"]["self"]["tensor"] == nodes[0]["results"][0]);
  CHECK(nodes.back()["args"]["start"] == 1);

  // Another view of the same memory sees the write.
  graph = GraphOf("def forward(x, w):\n    y = x + w\n    z = y.t()\n    y += 1.0\n    return z * 1.0\n");
  CHECK(Ops(graph["nodes"]) == "add add t mul");
  CHECK(graph["nodes"][2]["args"]["self"]["tensor"] == graph["nodes"][1]["results"][0]);

  // A copy does not.
  graph = GraphOf("def forward(x, w):\n    y = x + w\n    z = y.clone()\n    y += 1.0\n    return z * 1.0\n");
  CHECK(Ops(graph["nodes"]) == "add mul");
  CHECK(graph["nodes"][0]["args"]["self"]["tensor"] == 0);

  CHECK(Says(Refusal("def forward(x, w):\n    y = x + w\n    y.unfold(1, 2, 1).mul_(2)\n    return y\n"),
             "`unfold`"));
}

TEST_CASE("input-outputs are the last outputs, by their values after the call") {
  Problem problem = ProblemWith("def forward(x, w):\n    y = x * 2.0\n    x[1] = w\n    return y + x\n");
  problem.inputs[0].is_inout = true;
  problem.outputs.push_back(problem.inputs[0]);
  const json graph = json::parse(ReferenceGraph(problem, "small"));
  CHECK(Ops(graph["nodes"]) == "mul select_scatter add");
  REQUIRE(graph["outputs"].size() == 2);
  CHECK(graph["outputs"][1] == graph["nodes"][1]["results"][0]);
  CHECK(graph["nodes"][0]["args"]["self"]["tensor"] == 0);
  problem.reference = "def forward(x, w):\n    return x + w\n";
  CHECK_THROWS_WITH(ReferenceGraph(problem, "small"),
                    "mine: the reference leaves its input-output `x` as it is");
  CHECK(Says(Refusal("def forward(x, w):\n    x.add_(1.0)\n    return x + w\n"),
             "the reference writes into its input `x`"));
}

TEST_CASE("what repeats or changes nothing leaves no second node") {
  const json graph = GraphOf(
      "def forward(x, w):\n"
      "    a = torch.exp(x)[:, :].view(4, 8).contiguous()\n"
      "    b = torch.exp(x)\n"
      "    c = torch.sin(x)\n"
      "    return a + b\n");
  CHECK(Ops(graph["nodes"]) == "exp add");
  CHECK(Ops(GraphOf("def forward(x, w):\n    return torch.rand_like(x) - torch.rand_like(x)\n")["nodes"]) ==
        "rand_like rand_like sub");
}

TEST_CASE("a long loop of equal iterations stays a loop") {
  constexpr const char* kText =
      "def forward(x, w):\n"
      "    h = w\n"
      "    outs: List[Tensor] = []\n"
      "    for t in range(x.size(0)):\n"
      "        h = torch.tanh(h + x[t])\n"
      "        outs.append(h * 2)\n"
      "    return torch.stack(outs, 1), h\n";
  CHECK(Says(Ops(GraphOf(kText)["nodes"]), "select add tanh mul select"));  // four iterations
  const json graph = GraphOf(kText, "full");
  CHECK(Ops(graph["nodes"]) == "loop permute");
  const json& loop = graph["nodes"][0];
  CHECK(loop["args"]["trip"] == 40);
  CHECK(Ops(loop["body"]) == "select add tanh mul");
  CHECK(loop["body"][0]["args"]["index"] == json{{"base", 0}, {"step", 1}});
  REQUIRE(loop["carried"].size() == 1);
  CHECK(loop["carried"][0][0] == 1);
  CHECK(loop["carried"][0][1] == loop["body"][1]["args"]["self"]["tensor"]);
  CHECK(loop["carried"][0][2] == loop["body"][2]["results"][0]);
  CHECK(loop["carried"][0][3] == graph["outputs"][1]);
  REQUIRE(loop["stacked"].size() == 1);
  CHECK(loop["stacked"][0][0] == loop["body"][3]["results"][0]);
  const json& stacked = graph["values"][loop["stacked"][0][1].get<int>()];
  CHECK(stacked["shape"] == json{40, 8});
  CHECK(graph["values"][graph["outputs"][0].get<int>()]["shape"] == json{8, 40});
}

TEST_CASE("a loop whose first iteration differs keeps the others, one that grows is unrolled") {
  const json graph = GraphOf(
      "def forward(x, w):\n"
      "    y = torch.zeros_like(x)\n"
      "    h = w\n"
      "    for t in range(x.size(0)):\n"
      "        if t == 0:\n"
      "            h = torch.sin(x[0])\n"
      "        else:\n"
      "            h = h * x[t]\n"
      "        y[t] = h\n"
      "    return y\n",
      "full");
  CHECK(Says(Ops(graph["nodes"]), "sin"));
  const json& loop = graph["nodes"].back();
  CHECK(loop["op"] == "loop");
  CHECK(loop["args"]["trip"] == 39);
  CHECK(loop["body"][0]["args"]["index"] == json{{"base", 1}, {"step", 1}});
  CHECK(loop["carried"].size() == 2);
  CHECK(graph["outputs"] == loop["results"]);

  const json grown = GraphOf(
      "def forward(x, w):\n"
      "    y = x\n"
      "    for t in range(20):\n"
      "        y = torch.cat([y, x[t:t + 1]], 0)\n"
      "    return y\n",
      "full");
  CHECK(grown["nodes"].size() == 40);
}

TEST_CASE("what depends on values, or is no graph, is refused by name") {
  CHECK(Says(Refusal("def forward(x, w):\n    if bool((x.sum() > 0)):\n        return x\n    return -x\n"),
             "reads the value of a tensor (Bool)"));
  CHECK(Says(Refusal("def forward(x, w):\n    return x * x.max().item()\n"),
             "reads the value of a tensor (item)"));
  CHECK(Says(Refusal("def forward(x, w):\n    return x[x > 0]\n"), "index"));
  CHECK(Says(Refusal("def forward(x, w):\n    return torch.matmul(x, x)\n"), "matmul"));
  CHECK(Says(
      Refusal(
          "def forward(x, w):\n    y = x\n    for i in range(1000000):\n        y = y + 1\n    return y\n"),
      "operators"));
  CHECK(Says(
      Refusal(
          "def forward(x, w):\n    if x.size(0) != 5:\n        raise Exception(\"five rows\")\n    return x\n"),
      "five rows"));
  CHECK(Says(Refusal("def forward(x):\n    return x\n"), "takes 1 arguments"));
  CHECK(Says(Refusal("def forward(x, w):\n    return torch.unheard_of(x)\n"), "unheard_of"));
  CHECK(Says(Refusal("def forward(x, w):\n    return torch.nonzero(x)\n"), "`nonzero`"));
  CHECK(Says(Refusal("def forward(x, w):\n    return torch.fft_fft(x)\n"), "`fft_fft`"));
}

TEST_CASE("loops and lists that are too long are refused, and soon") {
  const char* const kLoops[] = {"    for i in range(1000000000):\n        pass\n",
                                "    n = 0\n    while n < 1000000000:\n        n += 1\n",
                                "    n = 0\n    for i in range(1000000000):\n        n = n + i\n"};
  for (const char* loop : kLoops) {
    const std::string refusal = Refusal(std::string("def forward(x, w):\n") + loop + "    return x\n");
    INFO(loop << refusal);
    CHECK((refusal.empty() || Says(refusal, "steps")));
  }
  // What has no effect may be left out; what has one is counted.
  const std::string counted = Refusal(
      "def forward(x, w):\n    n = 0\n    for i in range(1000000000):\n        n = n + i\n    return x * n\n");
  CHECK(Says(counted, "steps"));
}

TEST_CASE("a dimension without elements is kept in the graph") {
  const json graph = GraphOf("def forward(x, w):\n    return torch.cat([x[:, 0:0], x], 1)\n");
  CHECK(Ops(graph.at("nodes")).find("cat") != std::string::npos);
}

}  // namespace kevin
