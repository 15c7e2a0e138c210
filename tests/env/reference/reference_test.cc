// What the text of a problem can do: texts in red_team/ must be refused before they run, and the process that
// runs references must not be able to do what they want to do.

#include "env/reference/reference.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "env/error.h"
#include "env/problem/reference_operators.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

Problem WithReference(const std::string& text) {
  Problem problem = ListedProblem("level1/19");
  problem.reference = text;
  problem.scale.clear();
  return problem;
}

// Compiles the text and runs it once.
void Run(const std::string& text) {
  const Problem problem = WithReference(text);
  Reference reference(problem, 1);
  std::vector<float> values(64, -1.0F);
  reference.BindSlot(0, {{values.data(), DType::kF32, {8, 8}}});
  reference.RunSlot(0);
}

constexpr const char* kFullOfNines = "99999999999999999999999999999999";

}  // namespace

TEST_CASE("texts that reach for more than tensors are refused before they run") {
  int refused = 0, all = 0;
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(SourceFolder() / "tests/env/reference/red_team"))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 12);
  for (const fs::path& file : files) {
    const TemporaryFolder folder;
    const std::string canary = folder.path() / "canary";
    std::ofstream(canary) << kFullOfNines;
    std::string text = TextOf(file);
    if (const size_t at = text.find("CANARY"); at != std::string::npos) text.replace(at, 6, canary);
    std::string why = "nothing";
    try {
      Run(text);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      why = error.what();
    }
    INFO(file.stem() << ": " << why);
    CHECK(why != "nothing");
    CHECK(TextOf(canary) == kFullOfNines);
    std::printf("  %-32s %s\n", file.stem().c_str(), why.substr(why.find(": ") + 2, 90).c_str());
    refused += why != "nothing";
    ++all;
  }
  std::printf("texts refused %d/%d\n", refused, all);
}

TEST_CASE("the reference of every problem is allowed") {
  const ProblemSet problems(SourceFolder() / "env/problems");
  size_t count = 0;
  for (const std::string& id : problems.Ids()) {
    INFO(id);
    CHECK_NOTHROW(Reference(problems.Find(id), 1));
    ++count;
  }
  CHECK(count > 300);
}

TEST_CASE("the ways of TorchScript to write a computation are allowed") {
  for (
      const char* body :
      {"return torch.relu_(x.clone())", "y = x[1:, ::2]\n    y += 1\n    return y.sum().sqrt()",
       "return torch.stack([x[i] * i for i in range(int(x.size(0)))])",
       "z = {'a': x}\n    return z['a' + str('')].float()",
       "assert x.size(0) > 0, 'rows'\n    return x @ x.t()",
       "return torch.where(x > 0, x, float('-inf')).to(x.dtype)", "return x.view(x.shape[0], -1).T",
       "return torch.linalg_norm(torch.fft_rfft(x).abs()) * torch.special_erfcx(x)",
       "a, b = torch.max(x, 1)\n    if a.dim() == 1 and b.numel() > 0:\n        a = a.unsqueeze(0)\n    return a",
       "while int(x.sum()) > 100:\n        x = x / 2\n    return x.masked_fill(x < 0, 0.0)"}) {
    INFO(body);
    CHECK_NOTHROW(Run(std::string("def forward(x):\n    ") + body + "\n"));
  }
}

TEST_CASE("names are looked up whole, in their own space") {
  CHECK(IsReferenceOperator("aten::relu"));
  CHECK(IsReferenceOperator("aten::relu_"));
  CHECK(IsReferenceOperator("prim::If"));
  for (const char* kind : {"aten::from_file", "aten::save", "aten::relu__", "prim::relu", "aten::If", "relu",
                           "", "aten::", "aten::_", "prim::Print", "prim::fork", "cuda::synchronize",
                           "quantized::linear", "aten::set_", "aten::resize_", "aten::warn"}) {
    INFO(kind);
    CHECK(!IsReferenceOperator(kind));
  }
}

}  // namespace kevin
