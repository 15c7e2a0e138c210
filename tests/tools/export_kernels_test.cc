// `kevin export`: kernels in all their forms, compiled where there is a compiler.

#include <map>
#include <set>

#include "env/error.h"
#include "env/problem/precision.h"
#include "tests/catch.h"
#include "tests/tools/export_fixture.h"
#include "tools/export/kernel_forms.h"
#include "tools/export/launch_code.h"
#include "tools/export/model_new.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// The problem with other sizes at "small", in its text too, which the graph is made from.
Problem Small(const std::string& id, const std::map<std::string, int64_t>& sizes) {
  const Problem listed = ProblemSet(ProblemSet::DefaultDirectory()).Find(id);
  std::string text = listed.text;
  const size_t start = text.find("[sizes.small]");
  for (const auto& [name, value] : sizes) {
    const size_t line = text.find("\n" + name + " = ", start) + 1;
    text.replace(line, text.find('\n', line) - line, name + " = " + std::to_string(value));
  }
  return ParseProblem(text, listed.path);
}
TEST_CASE("an exported C++ kernel compiles alone, and is a candidate as before") {
  const ExportFixture kevin;
  const fs::path file = kevin.folder / "relu.cpp";
  REQUIRE(kevin({"export", kevin.episodes[0], "--best", "-o", file.string()}).code == 0);
  const std::string text = Bytes(file);
  CHECK(Contains(text, "constexpr long "));
  const std::string compile = "g++ -std=c++20 -march=native -fopenmp -c -o /dev/null ";
  CHECK(Shell(compile + file.string()) == 0);
  // Kevin includes a candidate after the constants of its own.
  std::string wrapper;
  for (const auto& [name, value] : AtSize(kevin.problem, "small").symbols)
    wrapper += "constexpr long " + name + " = " + std::to_string(value) + ";\n";
  Write(kevin.folder / "wrapper.cpp", wrapper + "#include \"relu.cpp\"\n");
  CHECK(Shell(compile + (kevin.folder / "wrapper.cpp").string()) == 0);
}

TEST_CASE("kernels in Python are exported as files of Python, and to KernelBench's folder as they are") {
  const ExportFixture kevin;
  const std::string model = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n";
  const std::string launch = "def launch(x, out):\n    out.fill_(B * N)\n";
  {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    int number = 3;
    for (const auto& [kind, source] :
         std::map<std::string, std::string>{{"modelnew", model}, {"triton", launch}}) {
      TurnRecord turn = SampleTurn(number++, 9);
      turn.evaluation.kind = kind, turn.evaluation.source = source;
      turn.evaluation.candidate_hash = ContentHash(kind + source);
      store.AppendTurn(kevin.episodes[0], turn);
    }
  }
  const fs::path file = kevin.folder / "relu.py", other = kevin.folder / "launch.py";
  REQUIRE(kevin({"export", kevin.episodes[0], "--turn", "3", "-o", file.string()}).code == 0);
  CHECK(Bytes(file).starts_with("# Problem:  level1/19"));
  CHECK(Bytes(file).ends_with("\n" + model));
  REQUIRE(kevin({"export", kevin.episodes[0], "--turn", "4", "-o", other.string()}).code == 0);
  // The constants in scope, unless somebody has set them.
  CHECK(Contains(Bytes(other), "globals().setdefault(\"B\", "));
  if (Shell("command -v python3 >/dev/null") == 0) {
    CHECK(Shell("python3 -c \"import ast; ast.parse(open('" + file.string() + "').read())\"") == 0);
    CHECK(Shell("cd '" + kevin.folder.path().string() +
                "' && python3 -c \"import launch; assert launch.B > 0\"") == 0);
  }
  for (const char* form : {"cu", "torch-package"}) {
    const Result refused = kevin({"export", kevin.episodes[0], "--turn", "3", "--as", form, "-o", "relu"});
    CHECK(refused.code == 2);
    CHECK(Contains(refused.error, "a kernel of kind modelnew cannot be"));
  }
}

TEST_CASE("in bf16 an exported C++ kernel brings the type along") {
  const Problem problem = InPrecision(Small("level1/19", {}), Precision::kBf16);
  const std::string source =
      "extern \"C\" void launch(const bf16* x, bf16* out) {\n  for (long i = 0; i < B * N; ++i) out[i] = x[i];\n}\n";
  TemporaryFolder folder;
  Write(folder / "k.cpp", StandaloneCpp(AtSize(problem, "small"), {"heading"}, source));
  CHECK(Shell("g++ -std=c++20 -c -o /dev/null " + (folder / "k.cpp").string()) == 0);
}

TEST_CASE("a kernel that was not correct is exported only with --any") {
  const ExportFixture kevin;
  {
    Store store = Store::Open(kevin.database, OpenMode::kWrite);
    TurnRecord wrong = SampleTurn(3, 1);
    wrong.evaluation.outcome = "wrong", wrong.evaluation.correct = false, wrong.evaluation.speedup.reset();
    wrong.evaluation.reason = "element 7 differs";
    store.AppendTurn(kevin.episodes[0], wrong);
  }
  const fs::path file = kevin.folder / "wrong.cpp";
  const Result refused = kevin({"export", kevin.episodes[0], "--turn", "3", "-o", file.string()});
  CHECK(refused.code == 2);
  CHECK(Contains(refused.error, "is not correct (wrong: element 7 differs)"));
  CHECK(Contains(refused.error, "--any"));
  CHECK_FALSE(fs::exists(file));
  CHECK(kevin({"export", kevin.episodes[0], "--turn", "3", "--any", "-o", file.string()}).code == 0);
  CHECK(fs::exists(file));
}

TEST_CASE("an export follows the verdicts that stand, not superseded ones") {
  const ExportFixture kevin;
  const std::string& episode = kevin.episodes[2];
  Store store = Store::Open(kevin.database, OpenMode::kWrite);
  const std::string winner = store.LoadTurns(episode).at(0).evaluation.id;
  EvaluationRecord slower = SampleEvaluation("x", 1.25);
  slower.purpose = "rejudge";
  const std::string third = store.AppendTurn(episode, SampleTurn(3, 2.75));
  store.Supersede({third}, store.AppendEvaluation(episode, 3, slower));
  store.AppendTurn(episode, SampleTurn(4, 1.1));
  const std::string file = (kevin.folder / "k.cpp").string();
  const auto best = [&] {
    CHECK(kevin({"export", episode, "--best", "--force", "-o", file}).code == 0);
    return Bytes(file);
  };
  CHECK(Contains(best(), "Speed-up: 2.5x"));
  EvaluationRecord wrong = SampleEvaluation("x", 1);
  wrong.purpose = "audit", wrong.outcome = "wrong", wrong.correct = false, wrong.speedup.reset();
  wrong.reason = "another time it differs";
  store.Supersede({winner}, store.AppendEvaluation(kevin.episodes[1], 1, wrong));

  const std::string next = best();
  CHECK(Contains(next, "turn 3, policy"));
  CHECK(Contains(next, "Speed-up: 1.25x"));
  const Result refused = kevin({"export", episode, "--turn", "1", "--force", "-o", file});
  CHECK(refused.code == 2);
  CHECK(Contains(refused.error, "is not correct (wrong: another time it differs)"));
  CHECK(kevin({"export", episode, "--turn", "1", "--any", "--force", "-o", file}).code == 0);
  CHECK(Contains(Bytes(file), "Speed-up: none: wrong: another time it differs"));
}

TEST_CASE("the CUDA text of every problem can be written, and a few of them compile") {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  const std::set<std::string> compiled = {"level1/23", "level1/1"};
  for (const std::string& id : problems.Ids()) {
    INFO(id);
    const Problem problem = problems.Find(id);
    const SizedProblem sized = AtSize(problem, "full");
    std::string why;
    const std::string source = testing::SearchText(problem, "full", "cuda", &why);
    if (!why.empty()) continue;
    const LaunchCode one = WriteLaunchCode(sized, "cuda", source);
    CHECK(Contains(one.text, "static cudaError_t Run(char* const* buffers"));
    if (!compiled.count(id)) continue;
    if (Nvcc().empty()) {
      WARN("no nvcc on this machine: " << id << " was written but not compiled");
      continue;
    }
    TemporaryFolder folder;
    Write(folder / "k.cu", one.text);
    const std::string at = folder.path().string();
    CHECK(Shell("nvcc -std=c++20 -arch=sm_90 --expt-relaxed-constexpr -w -c -o /dev/null " + at + "/k.cu") ==
          0);
  }
}

TEST_CASE("launch lists become host code: clusters, cooperative launches, copies, constants, workspaces") {
  const Problem problem = Small("level1/19", {{"B", 4}, {"N", 256}});
  const std::string source = R"(
__constant__ float table[2];
template <int kBlock>
__global__ void relu(const float* x, float* scratch, float* out, int n, float low, bool is_on) {
  extern __shared__ float tile[];
  const int i = blockIdx.x * kBlock + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i], low + table[0]);
  if (is_on && scratch) tile[0] = scratch[0];
}
void launch(const float* x, float* out) {
  float* scratch = workspace<float>(100, zeroed);
  constant(table, {0.0f, 1.0f});
  relu<128><<<ceil_div(B * N, 128), 128, 65536, cluster(2)>>>(x, scratch + 4, out, B * N, 0.0, true);
  relu<64><<<ceil_div(B * N, 64), 64, 0, cooperative()>>>(x, nullptr, out, B * N, 0.0, false);
  cudaMemcpyAsync(scratch, x, 16, cudaMemcpyDeviceToDevice);
}
)";
  const LaunchCode code = WriteLaunchCode(AtSize(problem, "small"), "cuda", source);
  CHECK(code.workspace_bytes == std::vector<int64_t>{400});
  for (const char* part :
       {"cudaFuncSetAttribute(relu<128>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536)",
        "clusterDim = {2u, 1u, 1u}", "cooperative = 1", "cudaMemsetAsync(buffers[2], 0, 400L",
        "cudaMemcpyAsync(buffers[2], buffers[0], 16L", "kevin_launch::Address{buffers[2] + 16L}", "nullptr",
        "cudaMemcpyToSymbolAsync(table", "cudaFuncGetAttributes(&attributes, relu<64>)"}) {
    INFO(part << "\n" << code.text);
    CHECK(Contains(code.text, part));
  }
  CHECK_THROWS_AS(WriteLaunchCode(AtSize(problem, "small"), "ptx", source), Error);
  CHECK_THROWS_AS(WriteLaunchCode(AtSize(problem, "small"), "cuda", "int main() {}"), Error);
  if (Nvcc().empty()) {
    WARN("no nvcc on this machine: the code was written but not compiled");
    return;
  }
  TemporaryFolder folder;
  Write(folder / "k.cu", code.text);
  CHECK(Shell("nvcc -std=c++20 -arch=sm_90 --expt-relaxed-constexpr -w -c -o /dev/null " +
              (folder / "k.cu").string()) == 0);
}

// --- PyTorch packages; tests/tools/package_test.py uses built ones ---

}  // namespace
}  // namespace kevin
