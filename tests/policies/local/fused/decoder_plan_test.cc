#include "policies/local/fused/decoder_plan.h"

#include <algorithm>
#include <map>

#include "tests/catch.h"

namespace kevin::local {
namespace {

const GpuShape kH200{132, 232448, 9, 0};

ModelConfig Shape(int hidden, int layers, int heads, int kv_heads, int head_dim, int ffn) {
  ModelConfig config;
  config.hidden = hidden, config.layers = layers, config.heads = heads, config.kv_heads = kv_heads;
  config.head_dim = head_dim, config.ffn = ffn, config.vocabulary = 151936, config.qkv_bias = true;
  return config;
}

std::map<std::string, int> Numbers(const DecoderPlan& plan) {
  std::map<std::string, int> numbers;
  for (const std::string& macro : plan.macros) {
    const size_t equals = macro.find('=');
    if (macro.find('.') == std::string::npos)
      numbers[macro.substr(0, equals)] = std::stoi(macro.substr(equals + 1));
  }
  return numbers;
}

}  // namespace

TEST_CASE("published shapes are decoded with deep rings and evenly loaded warps") {
  const ModelConfig config = GENERATE(Shape(896, 24, 14, 2, 64, 4864), Shape(1536, 28, 12, 2, 128, 8960),
                                      Shape(3584, 28, 28, 4, 128, 18944), Shape(5120, 64, 40, 8, 128, 27648),
                                      Shape(4096, 36, 32, 8, 128, 12288), Shape(2048, 16, 32, 8, 64, 8192));
  REQUIRE(WhyNoDecoder(config, kH200).empty());
  const DecoderPlan plan = PlanDecoder(config, kH200, 32);
  std::map<std::string, int> n = Numbers(plan);
  CHECK(n["HIDDEN"] == config.hidden);
  CHECK(n["BLOCKS"] == 132);
  CHECK(n["STAGES"] >= 5);
  CHECK(n["STAGES"] * n["STAGE_BYTES"] * 8 < plan.decode_shared_bytes);
  CHECK(n["STAGES"] * n["STAGE_BYTES"] * 8 > 120 << 10);  // 16 MB in flight on the whole device
  const int rows = 2 * ((config.ffn + 131) / 132), warps = 8 / n["CUT_HIDDEN"];
  const double rounds = (rows + warps - 1) / warps, ideal = 1.0 * rows / warps;
  CHECK(rounds / ideal < 1.05);
  for (const char* cut : {"CUT_HIDDEN", "CUT_O", "CUT_DOWN"}) CHECK(8 % n[cut] == 0);
}

TEST_CASE("what the kernels cannot decode is named") {
  ModelConfig config = Shape(1536, 28, 12, 2, 128, 8960);
  CHECK(WhyNoDecoder(config, {108, 166912, 8, 0}) == "a GPU of compute capability 8.0; 9.0 is needed");
  config.head_dim = 96;
  CHECK(WhyNoDecoder(config, kH200) == "heads of 96 numbers");
  config.head_dim = 128, config.kv_heads = 1;
  CHECK(WhyNoDecoder(config, kH200) == "12 query heads for each key head");
  config.kv_heads = 2, config.ffn = 60000;
  CHECK(WhyNoDecoder(config, kH200) == "layers too wide");
  config.ffn = 8961;
  CHECK(WhyNoDecoder(config, kH200) == "widths that are no multiples of 8");
  config.ffn = 8960, config.experts = 8;
  CHECK(WhyNoDecoder(config, kH200) == "a mixture of experts");
}

}  // namespace kevin::local
