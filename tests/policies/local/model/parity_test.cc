// The network against transformers: goldens/make_models.py made models.json.

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/policies/local/model/model_fixture.h"

namespace kevin::testing {
namespace {

using namespace local;

constexpr double kLargestDifference = 1e-3;

nlohmann::json Goldens() {
  std::ifstream file(SourceFolder() / "tests/policies/local/model/goldens/models.json");
  return nlohmann::json::parse(file);
}

}  // namespace

TEST_CASE("every family computes what transformers computes") {
  const nlohmann::json goldens = Goldens();
  REQUIRE(goldens.size() == 6);
  for (const auto& [name, golden] : goldens.items()) {
    INFO(name);
    const TempFolder folder;
    WriteHashedModel(folder.path(), golden["config"].dump());
    const auto model = LoadLanguageModel(folder.path(), Floats());
    const auto prompt = golden["prompt"].get<std::vector<int32_t>>();
    const auto greedy = golden["greedy"].get<std::vector<int32_t>>();
    REQUIRE(greedy.size() == 256);

    TorchRunnerOptions options;
    options.pages = 9;
    options.page_tokens = 32;
    TorchRunner runner(*model, options);
    CHECK(Greedy(runner, prompt, 256, {3, 4, 1, 0, 2, 5, 6, 7, 8}) == greedy);

    std::vector<int32_t> all = prompt;
    all.insert(all.end(), greedy.begin(), greedy.end());
    const at::Tensor logits = LogitsOf(*model, all);
    for (const auto& [row, values] : golden["logits"].items()) {
      INFO("row " << row);
      const at::Tensor expected = at::tensor(values.get<std::vector<double>>(), at::kDouble);
      CHECK(LargestDifference(logits.select(0, std::stoll(row)), expected) < kLargestDifference);
    }
  }
}

}  // namespace kevin::testing
