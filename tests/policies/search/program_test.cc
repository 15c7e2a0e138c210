// The place of workspaces: reused when dead, never while alive, none where nothing uses them.

#include "policies/search/program.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "policies/search/lower.h"
#include "tests/catch.h"

namespace kevin::search {
namespace {

constexpr int64_t kElements = 1000;

// out = in + 1 + 1 + ...: each step of `steps` stores to a workspace of its own but for the last.
Program Chain(int steps) {
  Program program;
  program.buffers.push_back({"in", "float32", kElements, 0, "", 0, false, -1});
  for (int i = 1; i < steps; ++i)
    program.buffers.push_back({"w", "float32", kElements, -1, "", 0, false, -1});
  program.buffers.push_back({"out", "float32", kElements, 1, "", 0, true, -1});
  for (int i = 0; i < steps; ++i) {
    const ExprPtr at = Variable(0, kElements);
    const ExprPtr value = Binary("add", Load(i, Type::kFloat, at), Float(1));
    Pointwise work;
    work.loops.push_back({0, kElements});
    work.stores.push_back({i + 1, at, value, nullptr});
    program.stages.push_back({"step", work, 0, 0});
  }
  return program;
}

int64_t BytesOf(const Buffer& buffer) {
  return buffer.elements * (buffer.dtype == "int64"        ? 8
                            : buffer.dtype.ends_with("16") ? 2
                            : buffer.dtype == "bool"       ? 1
                                                           : 4);
}

bool Overlap(const Buffer& a, const Buffer& b) {
  return a.place < b.place + BytesOf(b) && b.place < a.place + BytesOf(a);
}

// Every two workspaces that hold something at the same time lie apart, and all within the workspace.
void CheckPlaces(const Program& program) {
  std::vector<std::set<int>> used;
  for (const Stage& stage : program.stages) {
    used.emplace_back();
    for (const int buffer : BuffersRead(stage)) used.back().insert(buffer);
    for (const int buffer : BuffersWritten(stage)) used.back().insert(buffer);
  }
  std::vector<std::set<int>> alive(used.size());
  for (size_t i = 0; i < used.size(); ++i) {
    for (const int buffer : used[i]) {
      for (size_t j = i; j < used.size(); ++j) {
        if (!used[j].count(buffer)) continue;
        for (size_t between = i; between <= j; ++between) alive[between].insert(buffer);
      }
    }
  }
  for (const std::set<int>& together : alive) {
    for (const int a : together) {
      const Buffer& one = program.buffers[static_cast<size_t>(a)];
      if (one.argument >= 0) continue;
      REQUIRE(one.place >= 0);
      CHECK(one.place % 256 == 0);
      CHECK(one.place + BytesOf(one) <= program.workspace_bytes);
      for (const int b : together) {
        const Buffer& other = program.buffers[static_cast<size_t>(b)];
        if (b > a && other.argument < 0) CHECK_FALSE(Overlap(one, other));
      }
    }
  }
}

}  // namespace

TEST_CASE("a workspace is used again when it is dead") {
  Program program = Chain(9);
  PlaceWorkspaces(program);
  CheckPlaces(program);
  // At each step one is read and one is written.
  CHECK(program.workspace_bytes == 2 * ((kElements * 4 + 255) / 256 * 256));
}

TEST_CASE("a workspace that is read late keeps its place") {
  Program program = Chain(6);
  auto& last = std::get<Pointwise>(program.stages.back().work).stores[0];
  last.value = Binary("add", last.value, Load(1, Type::kFloat, last.offset));
  PlaceWorkspaces(program);
  CheckPlaces(program);
  CHECK(program.workspace_bytes == 3 * ((kElements * 4 + 255) / 256 * 256));
}

TEST_CASE("what Fuse leaves unused takes no workspace") {
  Program program = Chain(5);
  Fuse(program);
  PlaceWorkspaces(program);
  CHECK(program.stages.size() == 1);
  CHECK(program.workspace_bytes == 0);
  for (const Buffer& buffer : program.buffers) CHECK((buffer.argument >= 0 || buffer.elements == 0));
}

TEST_CASE("workspaces of lowered references lie apart while they live") {
  std::ifstream file(KEVIN_SOURCE_DIR "/tests/policies/search/lower_cases.jsonl");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const nlohmann::json one = nlohmann::json::parse(line);
    INFO(one.at("name").get<std::string>());
    const Graph graph = ParseGraph(one.at("graph").dump());
    Task task;
    for (const GraphInput& input : graph.inputs) task.arguments.push_back({input.name, "input", "", {}, {}});
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      task.arguments.push_back({"out" + std::to_string(i), "output", "", {}, {}});
    Program program = Lower(graph, task);
    PlaceWorkspaces(program);
    const int64_t before = program.workspace_bytes;
    CheckPlaces(program);
    Fuse(program);
    PlaceWorkspaces(program);
    CheckPlaces(program);
    CHECK(program.workspace_bytes <= before);
  }
  CHECK(cases > 100);
}

}  // namespace kevin::search
