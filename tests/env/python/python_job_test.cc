// The job of a Python worker, and the checks of the places that it names.

#include "env/python/python_job.h"

#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/python/output_places.h"
#include "tests/catch.h"

namespace kevin {
namespace {

Problem ProblemWith(const std::string& inputs, const std::string& reference) {
  return ParseProblem("id = \"test/1\"\nname = \"Test\"\nfamilies = [\"elementwise\"]\nreference = '''\n" +
                          reference + "'''\n[sizes.small]\nN = 8\n" + inputs +
                          "[cost]\nflops = \"N\"\nbytes = \"8*N\"\nmin_flops = 0\nmin_bytes = \"8*N\"\n",
                      "test.toml");
}

const std::string kX = "[[inputs]]\nname = \"x\"\nshape = [\"N\"]\n";
const std::string kOut = "[[outputs]]\nname = \"out\"\nshape = [\"N\"]\n";
const std::string kCache = "[[inputs]]\nname = \"cache\"\nshape = [\"N\"]\nrole = \"inout\"\n";

}  // namespace

TEST_CASE("a Python job names the place of every input") {
  const Problem problem = ProblemWith(kX + kOut, "def forward(x):\n    return torch.relu(x)\n");
  const SizedProblem sized = AtSize(problem, "small");
  const nlohmann::json job = PythonJob(sized, LayOutSlots(sized, 4), 4, false);
  REQUIRE(job.at("tensors").size() == 1);
  CHECK(job.at("tensors")[0].at("argument") == 0);
  CHECK(job.at("arguments").size() == 1);
}

TEST_CASE("a problem with an input-output has no Python job") {
  const Problem problem = ProblemWith(
      kX + kCache + kOut, "def forward(x, cache):\n    cache.add_(x)\n    return torch.relu(x)\n");
  const SizedProblem sized = AtSize(problem, "small");
  try {
    PythonJob(sized, LayOutSlots(sized, 4), 4, false);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(std::string(error.what()).find("`cache` is written into") != std::string::npos);
  }
}

}  // namespace kevin
