// Contractions in C++ against the interpreter: every way that the writer has, with and without the widest vectors.

#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/contraction_cases.h"

namespace kevin::test {
namespace {

void CheckWay(int64_t way, const std::string& flags) {
  const std::vector<ProgramCase> cases = EveryContraction();
  std::vector<std::string> texts;
  for (const ProgramCase& one : cases)
    texts.push_back(search::WriteCpp(one.program, TaskOf(one.program), {{"CONTRACTION", way}, {"BLOCK", 4}}));
  const KernelLibrary library(texts, flags);
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].name);
    CheckProgram(cases[i], library, i);
  }
}

}  // namespace

TEST_CASE("Contractions in C++: the best way") { CheckWay(0, "-O1"); }
TEST_CASE("Contractions in C++: the second way") { CheckWay(1, "-O1"); }
TEST_CASE("Contractions in C++: the third way") { CheckWay(2, "-O1"); }
TEST_CASE("Contractions in C++: vectors of 256 bits") { CheckWay(0, "-O1 -mno-avx512f"); }

}  // namespace kevin::test
