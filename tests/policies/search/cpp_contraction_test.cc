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

// Checks the cases that can go by Winograd, and counts them.
int CheckWinograd(const std::string& flags) {
  std::vector<ProgramCase> cases;
  std::vector<std::string> texts;
  for (const ProgramCase& one : EveryContraction()) {
    const std::string text = search::WriteCpp(one.program, TaskOf(one.program), {{"WINOGRAD", 2}});
    if (text.find("WinogradProducts(") == std::string::npos) continue;
    cases.push_back(one);
    texts.push_back(text);
  }
  const KernelLibrary library(texts, flags);
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].name);
    CheckProgram(cases[i], library, i);
  }
  return static_cast<int>(cases.size());
}

}  // namespace

TEST_CASE("Contractions in C++: the best way") { CheckWay(0, "-O1"); }
TEST_CASE("Contractions in C++: the second way") { CheckWay(1, "-O1"); }
TEST_CASE("Contractions in C++: the third way") { CheckWay(2, "-O1"); }
TEST_CASE("Contractions in C++: vectors of 256 bits") { CheckWay(0, "-O1 -mno-avx512f"); }

// 3 x 3 taps at stride 1 without groups: with and without padding, odd sizes, several images.
TEST_CASE("Contractions in C++: Winograd") {
  CHECK(CheckWinograd("-O1") == 5);
  CHECK(CheckWinograd("-O1 -mno-avx512f") == 5);
}

}  // namespace kevin::test
