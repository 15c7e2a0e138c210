// Weights in few bits: the codes against bitsandbytes (goldens/make_nf4.py made nf4.json), and models on them
// against dense models with the same numbers.

#include <ATen/ATen.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "policies/local/model/apply_weights.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/model/weights.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/policies/local/model/model_fixture.h"

namespace kevin::testing {
namespace {

using namespace local;

nlohmann::json Golden() {
  std::ifstream file(SourceFolder() / "tests/policies/local/model/goldens/nf4.json");
  return nlohmann::json::parse(file);
}

at::Tensor Bytes(const std::string& hexadecimal) {
  std::vector<int64_t> bytes;
  for (size_t i = 0; i < hexadecimal.size(); i += 2)
    bytes.push_back(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  return at::tensor(bytes, at::kLong).to(at::kByte);
}

at::Tensor Floats(const nlohmann::json& list) {
  return at::tensor(list.get<std::vector<double>>(), at::kDouble).to(at::kFloat);
}

// What make_nf4.py quantises.
at::Tensor Numbers() {
  at::Tensor numbers = at::tensor(HashedNumbers("nf4", 20 * 970), at::kDouble);
  numbers = (numbers * numbers * numbers).to(at::kFloat);
  numbers.narrow(0, 64, 64).zero_();
  const at::Tensor levels = Nf4Levels(at::kCPU);
  numbers.narrow(0, 128, 15).copy_((levels.narrow(0, 1, 15) + levels.narrow(0, 0, 15)) / 2);
  numbers[143] = 1;
  return numbers.view({20, 970});
}

// The dense model that a quantised one must equal.
std::unique_ptr<LanguageModel> WithQuantisedNumbers(const ModelConfig& config, Quantization kind) {
  auto model = HashedModel(config);
  const at::NoGradGuard no_gradients;
  for (auto& [name, tensor] : NamedTensors(model->GetWeights(), config)) {
    if (name.find("_proj.weight") == std::string::npos) continue;
    at::Tensor numbers = tensor;
    numbers.copy_(Dequantize(Quantize(numbers, kind), at::kFloat));
  }
  return model;
}

}  // namespace

TEST_CASE("NF4 codes and scales are those of bitsandbytes") {
  const nlohmann::json golden = Golden();
  const at::Tensor numbers = Numbers();
  CHECK(at::equal(DynamicMap(at::kCPU), Floats(golden["dynamic_map"])));
  const QuantizedMatrix plain = Quantize(numbers, Quantization::kNf4);
  CHECK(at::equal(plain.codes.view({-1}).narrow(0, 0, 9700), Bytes(golden["codes"])));
  CHECK(at::equal(plain.scales, Floats(golden["scales"])));
  const double sum = Dequantize(plain, at::kFloat).to(at::kDouble).abs().sum().item<double>();
  CHECK(sum == Approx(golden["sum"].get<double>()).epsilon(1e-9));

  const QuantizedMatrix twice = Quantize(numbers, Quantization::kNf4Double);
  CHECK(at::equal(twice.codes, plain.codes));
  CHECK(at::equal(twice.scale_codes, Bytes(golden["scale_codes"])));
  CHECK(LargestDifference(twice.group_scales, Floats(golden["group_scales"])) < 1e-7);
  CHECK(twice.scale_offset.item<double>() == Approx(golden["scale_offset"].get<double>()).epsilon(1e-7));
  const double double_sum = Dequantize(twice, at::kFloat).to(at::kDouble).abs().sum().item<double>();
  CHECK(double_sum == Approx(golden["double_sum"].get<double>()).epsilon(1e-7));
  CHECK(std::abs(double_sum - sum) > 1e-5 * sum);
}

TEST_CASE("int8 keeps each row to half a step of its scale") {
  const at::Tensor numbers = Numbers();
  const QuantizedMatrix matrix = Quantize(numbers, Quantization::kInt8);
  CHECK(matrix.codes.scalar_type() == at::kChar);
  CHECK(at::equal(matrix.codes.abs().amax(1), at::full({20}, 127, at::kChar)));
  const at::Tensor error = (Dequantize(matrix, at::kFloat) - numbers).abs() / matrix.scales.unsqueeze(1);
  CHECK(error.max().item<double>() < 0.5 + 1e-4);
  CHECK(error.max().item<double>() > 0.4);
  CHECK(Dequantize(Quantize(at::zeros({2, 6}), Quantization::kInt8), at::kFloat).eq(0).all().item<bool>());
}

TEST_CASE("a quantised model computes what a dense one with the same numbers does") {
  const std::vector<int32_t> tokens = HashedTokens("quantised", 30);
  for (const ModelFamily family : {ModelFamily::kQwen2, ModelFamily::kQwen3Moe}) {
    const ModelConfig config = TinyConfig(family);
    for (const Quantization kind : {Quantization::kInt8, Quantization::kNf4, Quantization::kNf4Double}) {
      INFO(NameOf(kind) << ", family " << static_cast<int>(family));
      ModelOptions options = kevin::testing::Floats();
      options.quantization = kind;
      const auto quantised = HashedModel(config, options);
      CHECK(!quantised->GetWeights().layers[0].qkv.weight.defined());
      const at::Tensor logits = LogitsOf(*quantised, tokens);
      CHECK(LargestDifference(logits, LogitsOf(*WithQuantisedNumbers(config, kind), tokens)) < 1e-4);
      CHECK(LargestDifference(logits, LogitsOf(*HashedModel(config), tokens)) > 1e-3);
    }
  }
}

TEST_CASE("gradients go through quantised weights as through dense ones") {
  const QuantizedMatrix matrix = Quantize(Numbers(), Quantization::kNf4Double);
  const std::vector<float> inputs = HashedTensor("x", {7, 970});
  const at::Tensor x = at::tensor(inputs, at::kFloat).view({7, 970}).requires_grad_(true);
  ApplyQuantized(matrix, x).sin().sum().backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad() = at::Tensor();
  at::linear(x, Dequantize(matrix, at::kFloat)).sin().sum().backward();
  CHECK(gradient.abs().max().item<double>() > 0.1);
  CHECK(LargestDifference(gradient, x.grad()) < 1e-5);
}

}  // namespace kevin::testing
