// The place of workspaces: reused when dead, never while alive, none where nothing uses them. Keys of equal stages. How
// two loops are used. What Fuse keeps apart: stages of which one reads what the other writes.

#include "policies/search/program.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "policies/search/lower.h"
#include "policies/search/stage_parts.h"
#include "policies/search/stage_use.h"
#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/policies/search/program_builder.h"

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
  std::ifstream file(SourceFolder() / "tests/policies/search/lower_cases.jsonl");
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

// --- Stages that read what another one writes ---

namespace {

using test::At, test::Plus, test::ProgramBuilder, test::Read, test::Times, test::Var;

constexpr int64_t kRows = 5, kColumns = 7;

// The outputs after a run, in the order of the buffers.
test::Memory OutputsOf(const Program& program) {
  test::Memory memory;
  for (const Buffer& buffer : program.buffers) {
    std::vector<double> values(static_cast<size_t>(buffer.elements), std::nan(""));
    for (size_t i = 0; buffer.argument >= 0 && !buffer.is_output && i < values.size(); ++i)
      values[i] = buffer.dtype == "int64" ? 0 : static_cast<double>(i * 37 % 11);
    memory.push_back(std::move(values));
  }
  test::Interpret(program, memory);
  test::Memory outputs;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (program.buffers[i].is_output) outputs.push_back(memory[i]);
  }
  return outputs;
}

// Fused, it computes the same, and no stage reads what it writes. Returns the number of stages.
size_t StagesAfterFuse(const Program& program) {
  Program fused = program;
  Fuse(fused);
  for (const Stage& stage : fused.stages) CHECK(HasIndependentPoints(fused, stage));
  CHECK(OutputsOf(fused) == OutputsOf(program));
  return fused.stages.size();
}

// Rows less their largest element; both are stored, and `after` makes the output from both buffers.
Program CentredRows(const std::function<void(ProgramBuilder&, int largest, int centred)>& after) {
  ProgramBuilder b;
  const int x = b.Input(kRows * kColumns), largest = b.Workspace(kRows),
            centred = b.Workspace(kRows * kColumns);
  const Loop row = b.NewLoop(kRows), column = b.NewLoop(kColumns);
  const ExprPtr value = Read(x, {row, column});
  b.Do("centred", Reduction{{row},
                            {column},
                            {{"max", value, 0, 0}},
                            {{largest, Var(row), Result(0), nullptr}},
                            {{centred, At({row, column}), Binary("sub", value, Result(0)), nullptr}}});
  after(b, largest, centred);
  return b.Case("centred").program;
}

}  // namespace

TEST_CASE("what reads the results of other rows is no part of the stage that computes them") {
  const Program program = CentredRows([](ProgramBuilder& b, int largest, int centred) {
    const Loop row = b.NewLoop(kRows), column = b.NewLoop(kColumns);
    const int out = b.Output(kRows * kColumns);
    const ExprPtr mirrored = AddInt(Int(kRows - 1), Scaled(Var(row), -1));
    const ExprPtr both = Plus(Read(largest, Var(row)), Read(largest, mirrored));
    b.Do("scaled", Pointwise{{row, column},
                             {{out, At({row, column}), Times(Read(centred, {row, column}), both), nullptr}}});
  });
  CHECK(StagesAfterFuse(program) == 2);
}

TEST_CASE("the results of the same row, and its elements, become a part of that stage") {
  const Program program = CentredRows([](ProgramBuilder& b, int largest, int centred) {
    const Loop row = b.NewLoop(kRows), column = b.NewLoop(kColumns);
    const int out = b.Output(kRows * kColumns);
    const ExprPtr value = Times(Read(centred, {row, column}), Read(largest, Var(row)));
    b.Do("scaled", Pointwise{{row, column}, {{out, At({row, column}), value, nullptr}}});
  });
  CHECK(StagesAfterFuse(program) == 1);
}

TEST_CASE("a row's result that reads elements of the row stays apart") {
  const Program program = CentredRows([](ProgramBuilder& b, int largest, int centred) {
    const Loop row = b.NewLoop(kRows);
    const int out = b.Output(kRows);
    const ExprPtr first = Read(centred, Scaled(Var(row), kColumns));
    b.Do("first", Pointwise{{row}, {{out, Var(row), Times(Read(largest, Var(row)), first), nullptr}}});
  });
  CHECK(StagesAfterFuse(program) == 2);
}

// A copy, and then elements of it at places that are read: the copy of another point could come after.
TEST_CASE("what overwrites elements of a tensor is no part of the stage that fills it") {
  const Program program = CentredRows([](ProgramBuilder& b, int, int centred) {
    const Loop row = b.NewLoop(kRows), column = b.NewLoop(kColumns);
    const int places = b.Input(kRows * kColumns, "int64"), out = b.Output(kRows * kColumns);
    const ExprPtr value = Read(centred, {row, column});
    b.Do("copy", Pointwise{{row, column}, {{out, At({row, column}), value, nullptr}}});
    const Loop from = b.NewLoop(kRows), at = b.NewLoop(kColumns);
    const ExprPtr place = Load(places, Type::kInt, At({from, at}));
    b.Do("scatter",
         Pointwise{{from, at},
                   {{out, AddInt(Scaled(Var(from), kColumns), place), Read(centred, {from, at}), nullptr}}});
  });
  CHECK(StagesAfterFuse(program) == 2);
}

TEST_CASE("an element that is stored under a condition is read from memory") {
  ProgramBuilder b;
  const int x = b.Input(kColumns), whole = b.Workspace(kColumns), part = b.Workspace(kColumns),
            out = b.Output(kColumns);
  const Loop clear = b.NewLoop(kColumns), i = b.NewLoop(kColumns), j = b.NewLoop(kColumns);
  b.Do("zeros", Pointwise{{clear}, {{part, Var(clear), Float(0), nullptr}}});
  const ExprPtr value = Unary("exp", Read(x, Var(i)));
  b.Do("parts",
       Pointwise{{i},
                 {{whole, Var(i), value, nullptr}, {part, Var(i), value, Compare("less", Var(i), Int(3))}}});
  const ExprPtr sum = Plus(Read(whole, Var(j)), Read(part, Var(j)));
  b.Do("sum", Pointwise{{j}, {{out, Var(j), sum, nullptr}}});
  CHECK(StagesAfterFuse(b.Case("parts").program) == 3);
}

TEST_CASE("points are independent where a buffer's places are apart") {
  Program program;
  program.buffers = FiveBuffers();
  const Loop row{1, 6}, column{2, 10};
  const ExprPtr time = Variable(3, 9), here = AddScaled(Var(column), Var(row), 20);
  const auto apart = [&](const ExprPtr& written, const ExprPtr& other, bool is_read) {
    Pointwise work{{row, column}, {{3, written, is_read ? Read(3, other) : Float(0), nullptr}}};
    if (!is_read) work.stores.push_back({3, other, Float(1), nullptr});
    return HasIndependentPoints(program, {"stage", work, 0, 0});
  };
  const auto slot = [&](int64_t later) { return AddScaled(here, ModInt(AddInt(time, Int(later)), 2), 120); };
  for (const bool is_read : {false, true}) {
    CHECK(apart(here, AddInt(here, Int(10)), is_read));       // two parts of a row
    CHECK_FALSE(apart(here, AddInt(here, Int(9)), is_read));  // they have an element in common
    CHECK(apart(here, AddInt(here, Int(120)), is_read));      // one after the other
    CHECK(apart(slot(1), slot(0), is_read));                  // two places of a loop, in turn
    CHECK_FALSE(apart(slot(2), slot(0), is_read));
    CHECK(apart(AddScaled(here, time, 120), AddInt(AddScaled(here, time, 120), Int(-120)), is_read));
    CHECK_FALSE(apart(AddScaled(here, time, 120), here, is_read));
    CHECK_FALSE(apart(here, Load(0, Type::kInt, here), is_read));
  }
  CHECK_FALSE(apart(here, here, true));
  program.buffers[3].is_inout = true;
  CHECK(apart(here, here, true));
  CHECK_FALSE(apart(here, AddInt(here, Int(1)), true));
}

}  // namespace kevin::search
