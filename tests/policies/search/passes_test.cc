// The passes over programs against the interpreter: programs made at random compute the same after each of them.

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "policies/search/forwarding.h"
#include "policies/search/lower.h"
#include "tests/catch.h"
#include "tests/policies/search/random_programs.h"

namespace kevin::test {
namespace {

using namespace search;

Memory OutputsIn(const Program& program, Memory memory) {
  Memory outputs;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (program.buffers[i].is_output) outputs.push_back(std::move(memory[i]));
  }
  return outputs;
}

Memory OutputsOf(const Program& program, Memory memory) {
  Interpret(program, memory);
  return OutputsIn(program, std::move(memory));
}

// What a stage stores destroys the workspaces that have the same place.
Memory OutputsInPlace(const Program& program, Memory memory) {
  const auto end_of = [](const Buffer& buffer) {
    return buffer.place + buffer.elements * (buffer.dtype == "int64" ? 8 : buffer.dtype == "bool" ? 1 : 4);
  };
  for (const Stage& stage : program.stages) {
    Interpret({program.buffers, {stage}, 0}, memory);
    for (const int number : BuffersWritten(stage)) {
      const Buffer& written = program.buffers[static_cast<size_t>(number)];
      for (size_t i = 0; i < memory.size() && written.argument < 0; ++i) {
        const Buffer& other = program.buffers[i];
        const bool is_shared = other.argument < 0 && other.elements > 0 && other.place < end_of(written) &&
                               written.place < end_of(other);
        if (is_shared && i != static_cast<size_t>(number))
          std::fill(memory[i].begin(), memory[i].end(), std::nan(""));
      }
    }
  }
  return OutputsIn(program, std::move(memory));
}

void ForEachLeaf(std::vector<Stage>& stages, const std::function<void(Stage&)>& visit) {
  for (Stage& stage : stages) {
    if (auto* repeat = std::get_if<Repeat>(&stage.work)) {
      ForEachLeaf(repeat->body, visit);
    } else {
      visit(stage);
    }
  }
}

// The points of all stages in the opposite order.
Program Backwards(Program program) {
  ForEachLeaf(program.stages, [](Stage& stage) {
    Replacement mirrored;
    const bool is_rows = std::holds_alternative<Reduction>(stage.work);
    for (std::vector<Loop>* loops : LoopListsOf(stage)) {
      if (is_rows && loops == &std::get<Reduction>(stage.work).inner) continue;
      for (const Loop& loop : *loops)
        mirrored[loop.variable] =
            AddInt(Int(loop.extent - 1), Scaled(Variable(loop.variable, loop.extent), -1));
    }
    ForEachExpr(stage, [&](ExprPtr& expr) { expr = Replace(expr, mirrored); });
  });
  return program;
}

// Fails, with both texts, where the program computes something else than the one that it was made from.
void CheckSame(const std::string& pass, const Program& program, const Program& from, const Memory& memory,
               const Memory& expected) {
  const bool is_same = OutputsOf(program, memory) == expected;
  if (!is_same) FAIL_CHECK(pass << " of\n" << NormalForm(from) << "gives\n" << NormalForm(program));
}

void CheckIndependent(const std::string& pass, const Program& program) {
  for (const Stage* stage : LeafStages(program)) {
    if (!HasIndependentPoints(program, *stage))
      FAIL_CHECK(pass << " has the stage\n" << StageForm(program, *stage) << "\nin\n" << NormalForm(program));
  }
}

}  // namespace

TEST_CASE("programs compute the same after each pass, in any order of their points") {
  size_t before = 0, after = 0;
  for (const uint64_t seed : SeedsOr(400)) {
    INFO("seed " << seed);
    const Program program = RandomProgram(seed);
    CheckIndependent("the generator", program);
    const Memory memory = WholeMemory(program, seed), expected = OutputsOf(program, memory);
    Program merged = program;
    ForEachLeaf(merged.stages, MergeLoops);
    CheckSame("MergeLoops", merged, program, memory, expected);
    Program fused = merged;
    Fuse(fused);
    CheckIndependent("Fuse", fused);
    CheckSame("Fuse", fused, merged, memory, expected);
    CheckSame("Fuse, backwards,", Backwards(fused), merged, memory, expected);
    PlaceWorkspaces(fused);
    CHECK(OutputsInPlace(fused, memory) == expected);
    before += LeafStages(program).size();
    after += LeafStages(fused).size();
  }
  CHECK(4 * after < 3 * before);
}

}  // namespace kevin::test
