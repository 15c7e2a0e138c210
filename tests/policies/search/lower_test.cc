// The lowering of single operations: the graphs and the sums of lower_cases.jsonl (lower_cases.py writes it) against the
// interpreter, before and after Fuse.

#include "policies/search/lower.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/policies/search/interpreter.h"

namespace kevin::search {
namespace {

using nlohmann::json;

// lower_cases.py has the same.
double Element(const std::string& kind, int64_t input, int64_t place) {
  const double share = static_cast<double>((place * 7919 + input * 1597 + 13) % 1009) / 1009;
  if (kind.starts_with("i")) return std::floor(share * std::stod(kind.substr(1)));
  if (kind == "b") return share < 0.5;
  if (kind == "s") return share < 0.5 ? -1 : 1;
  return kind == "p" ? share : (2 * share - 1) * 1.7;
}

Task TaskOf(const Graph& graph) {
  Task task;
  for (const GraphInput& input : graph.inputs)
    task.arguments.push_back({input.name, "input", "", graph.values[input.value].shape, {}});
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    task.arguments.push_back(
        {"out" + std::to_string(i), "output", "", graph.values[graph.outputs[i]].shape, {}});
  return task;
}

// The sum, a weighted sum and the sum of sizes of each output.
std::vector<std::vector<double>> SumsOf(const Program& program, const std::vector<std::string>& kinds) {
  test::Memory memory;
  for (const Buffer& buffer : program.buffers) {
    std::vector<double> values(static_cast<size_t>(buffer.elements), std::nan(""));
    if (buffer.argument >= 0 && !buffer.is_output) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] =
            Element(kinds.at(static_cast<size_t>(buffer.argument)), buffer.argument, static_cast<int64_t>(i));
    }
    memory.push_back(std::move(values));
  }
  test::Interpret(program, memory);
  std::vector<std::vector<double>> sums;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!program.buffers[i].is_output) continue;
    double sum = 0, weighted = 0, sizes = 0;
    for (size_t j = 0; j < memory[i].size(); ++j) {
      sum += memory[i][j];
      weighted += memory[i][j] * (static_cast<double>(j * 31 % 17) - 8);
      sizes += std::fabs(memory[i][j]);
    }
    sums.push_back({sum, weighted, sizes});
  }
  return sums;
}

void CheckSums(const std::vector<std::vector<double>>& sums, const json& expected) {
  REQUIRE(sums.size() == expected.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const double scale = expected[i][2].get<double>() + 1e-9;
    for (size_t j = 0; j < 3; ++j)
      CHECK(std::fabs(sums[i][j] - expected[i][j].get<double>()) <= 3e-6 * scale * (j == 1 ? 8 : 1));
  }
}

json CaseNamed(const std::string& name) {
  std::ifstream file(SourceFolder() / "tests/policies/search/lower_cases.jsonl");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("{\"name\":\"" + name + "\"")) return json::parse(line);
  }
  FAIL("no case " << name);
  return {};
}

Program Lowered(const json& one) {
  const Graph graph = ParseGraph(one.at("graph").dump());
  return Lower(graph, TaskOf(graph));
}

template <class Work>
int CountStages(const Program& program) {
  int count = 0;
  for (const Stage& stage : program.stages) count += std::holds_alternative<Work>(stage.work);
  return count;
}

}  // namespace

TEST_CASE("operations are lowered to what PyTorch computes") {
  std::ifstream file(SourceFolder() / "tests/policies/search/lower_cases.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const json one = json::parse(line);
    INFO(one.at("name").get<std::string>());
    Program program = Lowered(one);
    CheckSums(SumsOf(program, one.at("kinds")), one.at("sums"));
    Fuse(program);
    CheckSums(SumsOf(program, one.at("kinds")), one.at("sums"));
  }
  CHECK(cases > 100);
}

TEST_CASE("attention that the graph spells out is one stage") {
  for (const char* name :
       {"att_mat", "att_bias", "att_tril", "att_where", "att_bmm", "att_relu", "att_bcast"}) {
    INFO(name);
    CHECK(CountStages<Attention>(Lowered(CaseNamed(name))) == 1);
  }
  // Two readers of the scores, another dim, transposed scores.
  for (const char* name : {"att_two_users", "att_dim1", "att_transposed"}) {
    INFO(name);
    CHECK(CountStages<Attention>(Lowered(CaseNamed(name))) == 0);
  }
}

TEST_CASE("a triangular mask becomes causal") {
  for (const char* name : {"att_tril", "att_where", "sdpa_causal"}) {
    INFO(name);
    const Program program = Lowered(CaseNamed(name));
    for (const Stage& stage : program.stages) {
      if (const auto* work = std::get_if<Attention>(&stage.work)) CHECK(work->causal);
    }
  }
}

TEST_CASE("a query without keys is 0 of masked attention, NaN of a softmax that is written out") {
  const std::pair<const char*, bool> cases[] = {
      {"sdpa", false}, {"sdpa_mask", true}, {"sdpa_bool", true}, {"att_where", false}, {"att_tril", false}};
  for (const auto& [name, is_zero] : cases) {
    INFO(name);
    const Program program = Lowered(CaseNamed(name));
    CHECK(CountStages<Attention>(program) > 0);
    for (const Stage& stage : program.stages) {
      if (const auto* work = std::get_if<Attention>(&stage.work)) CHECK(work->masked_is_zero == is_zero);
    }
  }
}

TEST_CASE("both directions of a recurrent layer are one loop") {
  CHECK(CountStages<Repeat>(Lowered(CaseNamed("lstm_bi"))) == 2);  // of two layers
  CHECK(CountStages<Repeat>(Lowered(CaseNamed("loop"))) == 1);
}

TEST_CASE("what cannot be written is refused by name") {
  json one = CaseNamed("gather");
  one["graph"]["nodes"][0]["op"] = "unheard_of";
  CHECK_THROWS_WITH(Lowered(one), "`unheard_of` has no stage");
}

}  // namespace kevin::search
