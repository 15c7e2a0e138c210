// Problems whose `launch` writes into an input: what their files say, and what is checked.

#include "env/error.h"
#include "env/problem/problem.h"
#include "tests/catch.h"

namespace kevin {
namespace {

const char* const kCache = R"(id = "mine/cache"
name = "Cache"
families = ["attention"]
reference = '''
def forward(x, keys, w):
    keys[:, 0] = x * w
    return torch.sum(keys, 1)
'''
[sizes.small]
B = 4
N = 8

[[inputs]]
name = "x"
shape = ["B"]

[[inputs]]
name = "keys"
shape = ["B", "N"]
role = "inout"

[[inputs]]
name = "w"
shape = ["B"]
role = "param"

[[outputs]]
name = "out"
shape = ["B"]

[cost]
flops = "B*N"
bytes = "4*B*N"
min_flops = 0
min_bytes = "8*B*N + 4*B"
)";

std::string CacheWith(const std::string& from, const std::string& to) {
  std::string text = kCache;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("an input-output stands once among the arguments, and last among what is checked") {
  const Problem problem = ParseProblem(kCache, "cache.toml");
  REQUIRE(problem.inputs.size() == 3);
  REQUIRE(problem.outputs.size() == 2);
  CHECK(problem.outputs[1].name == "keys");
  CHECK(OwnOutputs(problem) == 1);
  CHECK(HasInOuts(problem));
  CHECK_FALSE(InOutOf(problem, 0));
  CHECK(InOutOf(problem, 1) == 1U);
  CHECK(LaunchSignature(problem) ==
        "extern \"C\" void launch(const float* x, float* keys, const float* w, float* out)");
  CHECK(LaunchSignature(problem, "cuda") ==
        "void launch(const float* x, float* keys, const float* w, float* out)");
  const std::vector<bool> written = {false, true, false, true};
  for (size_t i = 0; i < written.size(); ++i) {
    CHECK(IsWrittenArgument(problem, i) == written[i]);
    CHECK(IsOutputArgument(problem, i) == (i == 3));
  }
  CHECK(AtSize(problem, "small").arguments.size() == 4);
  RequireKindTakes(problem, "cpp");
  RequireKindTakes(problem, "ptx");
  for (const char* kind : {"modelnew", "triton"}) {
    try {
      RequireKindTakes(problem, kind);
      FAIL(kind);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      CHECK(std::string(error.what()).find("writes into its input `keys`") != std::string::npos);
    }
  }
}

TEST_CASE("a problem may have input-outputs alone") {
  std::string text = CacheWith("[[outputs]]\nname = \"out\"\nshape = [\"B\"]\n", "");
  const Problem problem = ParseProblem(text, "cache.toml");
  CHECK(OwnOutputs(problem) == 0);
  CHECK(LaunchSignature(problem) == "extern \"C\" void launch(const float* x, float* keys, const float* w)");
}

TEST_CASE("an input-output that cannot be checked is an error") {
  const auto complaint = [](const std::string& text) {
    try {
      ParseProblem(text, "cache.toml");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(complaint(CacheWith("role = \"inout\"", "role = \"inout\"\ndtype = \"int64\""))
            .find("cannot be int64") != std::string::npos);
  CHECK(complaint(CacheWith("role = \"inout\"", "role = \"output\"")).find("unknown role 'output'") !=
        std::string::npos);
  // Read and written: twice its bytes, and those of the others.
  CHECK(complaint(CacheWith("8*B*N + 4*B\"", "8*B*N + 17*B\"")).find("min_bytes") != std::string::npos);
  std::string many;
  for (int i = 0; i < 7; ++i) many += "[[outputs]]\nname = \"o" + std::to_string(i) + "\"\nshape = [1]\n\n";
  CHECK(complaint(CacheWith("[cost]", many + "[cost]")).find("there may be 8") != std::string::npos);
}

}  // namespace kevin
