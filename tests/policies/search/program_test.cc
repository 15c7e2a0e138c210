// The place of workspaces: reused when dead, never while alive, none where nothing uses them. Keys of equal stages. How
// two loops are used.

#include "policies/search/program.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "policies/search/lower.h"
#include "policies/search/stage_parts.h"
#include "policies/search/stage_use.h"
#include "policies/search/write.h"
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

// to = first - second over a loop with this variable.
struct Difference {
  int first = 0, second = 1, to = 3, variable = 0;
  int64_t extent = kElements, start = 0;
};

std::string KeyOf(const Difference& of, const std::vector<Buffer>& buffers) {
  Program program;
  program.buffers = buffers;
  const ExprPtr at = Variable(of.variable, of.extent);
  const auto read = [&](int buffer) { return Load(buffer, Type::kFloat, AddInt(at, Int(of.start))); };
  Pointwise work;
  work.loops.push_back({of.variable, of.extent});
  work.stores.push_back({of.to, at, Binary("sub", read(of.first), read(of.second)), nullptr});
  const Stage stage{"difference", work, 0, 0};
  std::vector<int> used = BuffersRead(stage);
  used.push_back(of.to);
  return StageKey(program, stage, used);
}

std::vector<Buffer> FiveBuffers() {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 5; ++i) buffers.push_back({"b", "float32", 2 * kElements, i, "", 0, i >= 3, -1});
  return buffers;
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

TEST_CASE("stages that differ in the numbers of buffers and variables alone have equal keys") {
  const std::vector<Buffer> buffers = FiveBuffers();
  const std::string key = KeyOf({}, buffers);
  CHECK_FALSE(key.empty());
  CHECK(KeyOf({.first = 1, .second = 2, .to = 4, .variable = 7}, buffers) == key);
  std::vector<Buffer> elsewhere = buffers;
  elsewhere[0].base = 4096, elsewhere[0].base_symbol = "", elsewhere[1].place = 512;
  CHECK(KeyOf({}, elsewhere) == key);
}

TEST_CASE("stages whose texts may differ have different keys") {
  const std::vector<Buffer> buffers = FiveBuffers();
  const std::string key = KeyOf({}, buffers);
  CHECK(KeyOf({.first = 1, .second = 0}, buffers) != key);  // the order of numbers decides that of terms
  CHECK(KeyOf({.first = 1, .second = 1}, buffers) != key);
  CHECK(KeyOf({.extent = kElements - 1}, buffers) != key);
  CHECK(KeyOf({.start = 1}, buffers) != key);
  const auto with = [&](const auto& change) {
    std::vector<Buffer> changed = buffers;
    change(changed[1]);
    return KeyOf({}, changed);
  };
  CHECK(with([](Buffer& b) { b.dtype = "float16"; }) != key);
  CHECK(with([](Buffer& b) { b.elements += 1; }) != key);
  CHECK(with([](Buffer& b) { b.is_output = true; }) != key);
  CHECK(with([](Buffer& b) { b.is_inout = true; }) != key);
  CHECK(with([](Buffer& b) { b.argument = -1; }) != key);
  CHECK(with([](Buffer& b) { b.base = 1; }) != key);  // its alignment
  CHECK(with([](Buffer& b) { b.base_symbol = "b_offset"; }) != key);
}

TEST_CASE("a stage in a loop, and a very large one, have no key") {
  Program program;
  program.buffers = FiveBuffers();
  const ExprPtr at = Variable(0, kElements), turn = Variable(1, 5);
  const auto key = [&](const ExprPtr& value) {
    const Stage stage{"stage", Pointwise{{{0, kElements}}, {{3, at, value, nullptr}}}, 0, 0};
    return StageKey(program, stage, {0, 3});
  };
  CHECK(key(Load(0, Type::kFloat, AddInt(at, turn))).empty());
  ExprPtr value = Load(0, Type::kFloat, at);
  CHECK_FALSE(key(value).empty());
  for (int i = 0; i < 16; ++i) value = Binary("add", Unary("exp", value), value);
  CHECK(key(value).empty());
}

TEST_CASE("a call that is made again has other arguments and the same function") {
  FunctionTable table("long");
  const size_t first = table.Add("f", "static void", "  a[" + Hole(5) + "] = 0;\n", {"float* a"}, {"x"});
  const size_t again = table.AddAgain(first, {"y"});
  const size_t other = table.Add("f", "static void", "  a[" + Hole(6) + "] = 0;\n", {"float* a"}, {"z"});
  const size_t last = table.AddAgain(other, {"x + 1"});
  CHECK(table.definitions() == 1);
  CHECK(table.Definitions() == "static void f(float* a, long s0) {\n  a[s0] = 0;\n}\n\n");
  CHECK(table.Call(first) == "f(x, 5)");
  CHECK(table.Call(again) == "f(y, 5)");
  CHECK(table.Call(other) == "f(z, 6)");
  CHECK(table.Call(last) == "f(x + 1, 6)");
}

TEST_CASE("two loops that are used as one position are a pair, others are not") {
  const Loop first{1, 6}, second{2, 4};
  const ExprPtr i = Variable(1, 6), j = Variable(2, 4), k = Variable(3, 9);
  const ExprPtr together = AddScaled(k, AddScaled(j, i, 4), 10);  // k + 10 * (4 * i + j)
  const auto use = [&](const ExprPtr& expr) { return UseOfLoopPair(expr, first, second); };
  CHECK_FALSE(use(together).is_apart);
  CHECK_FALSE(use(together).is_divided);
  CHECK(use(AddScaled(j, i, 5)).is_apart);
  CHECK(use(AddInt(i, k)).is_apart);
  CHECK(use(j).is_apart);
  CHECK(use(MulInt(j, k)).is_apart);
  CHECK_FALSE(use(DivInt(i, 5)).is_apart);
  CHECK(use(DivInt(i, 5)).is_divided);
  CHECK(use(DivInt(AddInt(i, k), 5)).is_divided);
  CHECK_FALSE(use(DivInt(k, 5)).is_divided);
  const ExprPtr joined = Replace(Load(0, Type::kFloat, together), JoinedPair(first, second, 8));
  CHECK(joined->key == Load(0, Type::kFloat, AddScaled(k, Variable(8, 24), 10))->key);
}

}  // namespace kevin::search
