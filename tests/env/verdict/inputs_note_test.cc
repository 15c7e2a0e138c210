#include "env/verdict/judgement.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {

TEST_CASE("a note on the inputs of an incorrect call: its member, and those before it") {
  const Problem problem = testing::ReluProblem();
  const SizedProblem sized = AtSize(problem, "small");
  const auto note = [&](int member, size_t earlier) {
    return InputsNote(sized, InputMode::kDefault, member, earlier);
  };
  CHECK(note(2, 0) == "; of the mixture, the inputs of this call were heavy-tailed");
  CHECK(note(7, 0) == "; of the mixture, the inputs of this call were bell-shaped times 8");
  CHECK(
      note(5, 2) ==
      "; of the mixture, the inputs of this call were uniform in [-2, 2], and calls with bell-shaped times 8, "
      "bell-shaped ones were correct before it");
  CHECK(note(6, 4).ends_with("were heavy-tailed, and calls with all four members were correct before it"));
  CHECK(note(-1, 0).empty());
}

TEST_CASE("a note on the inputs says whether rows were shifted") {
  Problem problem = testing::ReluProblem();
  problem.inputs[0].row_shift = 150;
  const SizedProblem sized = AtSize(problem, "small");
  const auto note = [&](int member) { return InputsNote(sized, InputMode::kDefault, member); };
  CHECK(note(3) == "; of the mixture, the inputs of this call were bell-shaped times 8, with shifted rows");
  CHECK(note(2).ends_with("heavy-tailed"));
}

TEST_CASE("without a mixture there is no note on the inputs") {
  Problem problem = testing::ReluProblem();
  CHECK(InputsNote(AtSize(problem, "small"), InputMode::kKernelBench, 2).empty());
  problem.inputs[0].distribution = Distribution::kNormal;
  CHECK(InputsNote(AtSize(problem, "small"), InputMode::kDefault, 2).empty());
}

}  // namespace kevin
