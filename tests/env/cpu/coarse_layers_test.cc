// Networks in which some layers multiply in TF32 or bf16.

#include <memory>
#include <string>

#include "env/cpu/cpu_environment.h"
#include "env/verdict/admission.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

CpuEnvironment& LayersEnvironment() {
  static const TemporaryFolder cache;
  static const std::unique_ptr<CpuEnvironment> environment =
      MakeCpuEnvironmentForTools(SmallLimits(cache.path()));
  return *environment;
}

// Two layers; `combined` is the input of the second, made of x and h, the result of the first.
Problem TwoLayers(const std::string& combined, const std::string& flags) {
  const std::string head = R"toml(id = "mine/1"
name = "Two layers"
families = ["matmul"]
reference = '''
def forward(x, v, w):
    h = torch.relu(torch.matmul(x, v))
    return torch.matmul(COMBINED, w)
'''
)toml";
  const std::string rest = R"toml(
[sizes.small]
N = 256
[[inputs]]
name = "x"
shape = ["N", "N"]
[[inputs]]
name = "v"
shape = ["N", "N"]
role = "param"
distribution = "uniform"
scale = "1/sqrt(N)"
[[inputs]]
name = "w"
shape = ["N", "N"]
role = "param"
distribution = "uniform"
scale = "1/sqrt(N)"
[[outputs]]
name = "out"
shape = ["N", "N"]
[cost]
flops = "4*N*N*N"
bytes = "16*N*N"
min_flops = 0
min_bytes = "16*N*N"
[check]
reduction = "2*N"
)toml";
  std::string text = head + flags + rest;
  const std::string mark = "COMBINED";
  return ParseProblem(text.replace(text.find(mark), mark.size(), combined), "mine.toml");
}

struct Counts {
  int coarse = 0, passed = 0, marked = 0;
};

Counts CoarseDecoysOf(const Problem& problem) {
  Counts counts;
  for (const DecoyResult& decoy : LayersEnvironment().Admit(problem, {})) {
    INFO(decoy.name << ": " << decoy.reason);
    if (decoy.name.find(" contraction") == std::string::npos) {
      CHECK(decoy.passed == decoy.must_pass);
      continue;
    }
    CHECK(decoy.reason.find("worst error ") == 0);
    ++counts.coarse;
    counts.passed += decoy.passed, counts.marked += decoy.is_marked;
  }
  return counts;
}

}  // namespace

TEST_CASE("a kernel that multiplies in TF32 or bf16 in one of its layers is incorrect") {
  const Counts counts = CoarseDecoysOf(TwoLayers("h", ""));
  CHECK(counts.coarse == 6);
  CHECK(counts.passed == 0);
}

TEST_CASE("a layer whose precision the output does not show is found, and the file may name it") {
  const Counts unmarked = CoarseDecoysOf(TwoLayers("(x + 1e-6 * h)", ""));
  CHECK(unmarked.passed == 2);
  CHECK(unmarked.marked == 0);
  const Counts marked = CoarseDecoysOf(TwoLayers(
      "(x + 1e-6 * h)", "[flags]\ncoarse-layers = \"TF32 in the first contraction: h is small.\"\n"));
  CHECK(marked.passed == 2);
  CHECK(marked.marked == 1);
}

}  // namespace kevin
