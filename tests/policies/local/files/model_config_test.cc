// config.json in both dialects, and what is refused.

#include "policies/local/files/model_config.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/policies/local/hashed_model.h"
#include "tests/support/fakes.h"

namespace kevin::testing {
namespace {

using namespace local;
using nlohmann::json;

// As published for transformers 4, with the fields that matter.
json QwenCoder() {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"attention_dropout", 0.0},
          {"bos_token_id", 151643},
          {"eos_token_id", 151645},
          {"hidden_act", "silu"},
          {"hidden_size", 1536},
          {"intermediate_size", 8960},
          {"max_position_embeddings", 32768},
          {"max_window_layers", 28},
          {"model_type", "qwen2"},
          {"num_attention_heads", 12},
          {"num_hidden_layers", 28},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-06},
          {"rope_theta", 1000000.0},
          {"sliding_window", 32768},
          {"tie_word_embeddings", true},
          {"torch_dtype", "bfloat16"},
          {"use_sliding_window", false},
          {"vocab_size", 151936}};
}

json Llama() {
  return {{"model_type", "llama"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"hidden_act", "silu"},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"max_position_embeddings", 131072},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 32},
          {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-05},
          {"rope_scaling",
           {{"factor", 8.0},
            {"high_freq_factor", 4.0},
            {"low_freq_factor", 1.0},
            {"original_max_position_embeddings", 8192},
            {"rope_type", "llama3"}}},
          {"rope_theta", 500000.0},
          {"eos_token_id", {128001, 128008, 128009}},
          {"torch_dtype", "bfloat16"},
          {"vocab_size", 128256}};
}

json Moe() {
  json config = QwenCoder();
  config["model_type"] = "qwen3_moe";
  config["head_dim"] = 128;
  config["num_experts"] = 128;
  config["num_experts_per_tok"] = 8;
  config["moe_intermediate_size"] = 768;
  config["norm_topk_prob"] = true;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  return config;
}

ModelConfig Parse(const json& config, const std::string& generation = "") {
  return ParseModelConfig(config.dump(), generation, "config.json");
}

std::string Refusal(const json& config) {
  try {
    Parse(config);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return error.what();
  }
  return "accepted";
}

json With(json config, const std::string& field, const json& value) {
  config[field] = value;
  return config;
}

}  // namespace

TEST_CASE("a published Qwen2.5 config is read") {
  const ModelConfig config =
      Parse(QwenCoder(), R"({"eos_token_id": [151645, 151643], "pad_token_id": 151643, "do_sample": true,
                       "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1})");
  CHECK(config.family == ModelFamily::kQwen2);
  CHECK(config.hidden == 1536);
  CHECK(config.head_dim == 128);
  CHECK(config.kv_heads == 2);
  CHECK(config.ffn == 8960);
  CHECK(config.context == 32768);
  CHECK(config.tied_embeddings);
  CHECK(config.qkv_bias);
  CHECK(!config.qk_norm);
  CHECK(config.rope.theta == 1e6);
  CHECK(config.dtype == NumberType::kBF16);
  CHECK(config.generation.end_tokens == std::vector<int32_t>{151645, 151643});
  CHECK(config.generation.begin_token == 151643);
  CHECK(config.generation.sample);
  CHECK(config.generation.temperature == 0.7f);
  CHECK(config.generation.top_k == 20);
  CHECK(!config.generation.min_p);
  CHECK(Parse(QwenCoder()).generation.end_tokens == std::vector<int32_t>{151645});
}

TEST_CASE("transformers 5 spells the same model otherwise") {
  json five = QwenCoder();
  five.erase("rope_theta");
  five.erase("torch_dtype");
  five["dtype"] = "bfloat16";
  five["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  five["layer_types"] = std::vector<std::string>(28, "full_attention");
  five["sliding_window"] = nullptr;
  CHECK(ConfigJson(Parse(five)) == ConfigJson(Parse(QwenCoder())));
  json llama = Llama();
  llama["rope_parameters"] = llama["rope_scaling"];
  llama["rope_parameters"]["rope_theta"] = llama["rope_theta"];
  llama.erase("rope_scaling");
  llama.erase("rope_theta");
  CHECK(ConfigJson(Parse(llama)) == ConfigJson(Parse(Llama())));
  CHECK(Parse(llama).rope.scaling == RopeConfig::Scaling::kLlama3);
}

TEST_CASE("the goldens' configs come back from what we write of them") {
  std::ifstream file(SourceFolder() / "tests/policies/local/model/goldens/models.json");
  const json goldens = json::parse(file);
  for (const auto& [name, golden] : goldens.items()) {
    INFO(name);
    const ModelConfig config = Parse(golden["config"]);
    const std::string written = ConfigJson(config);
    CHECK(ConfigJson(Parse(json::parse(written))) == written);
    const ModelConfig back = Parse(json::parse(written));
    CHECK(FrequenciesOf(back).frequencies == FrequenciesOf(config).frequencies);
    CHECK(back.context == config.context);
    CHECK(back.is_sparse == config.is_sparse);
    CHECK(back.head_dim == config.head_dim);
  }
}

TEST_CASE("sparse layers are every second but the dense ones") {
  const ModelConfig config = Parse(Moe());
  CHECK(config.experts == 128);
  CHECK(config.normalize_expert_weights);
  CHECK(!config.IsSparse(0));
  CHECK(config.IsSparse(1));
  CHECK(!config.IsSparse(2));
  CHECK(!config.IsSparse(3));
  CHECK(config.IsSparse(5));
}

TEST_CASE("positions turn as their scaling says") {
  const RopeFrequencies plain = FrequenciesOf(Parse(QwenCoder()));
  REQUIRE(plain.frequencies.size() == 64);
  CHECK(plain.frequencies[0] == 1);
  CHECK(plain.frequencies[32] == Approx(1e-3));
  CHECK(plain.attention_factor == 1);

  const RopeFrequencies llama = FrequenciesOf(Parse(Llama()));
  CHECK(llama.frequencies[0] == 1);                                            // quick: as it was
  CHECK(llama.frequencies[63] == Approx(std::pow(500000.0, -63.0 / 64) / 8));  // slow: stretched
  const double middle = std::pow(500000.0, -32.0 / 64);                        // 1.84 turns: blended
  const double share = (8192 * middle / (2 * M_PI) - 1) / 3;
  CHECK(llama.frequencies[32] == Approx((1 - share) * middle / 8 + share * middle));

  const json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const ModelConfig config = Parse(With(QwenCoder(), "rope_scaling", yarn));
  CHECK(config.context == 131072);
  const RopeFrequencies stretched = FrequenciesOf(config);
  CHECK(stretched.attention_factor == Approx(0.1 * std::log(4.0) + 1));
  CHECK(stretched.frequencies[0] == 1);
  CHECK(stretched.frequencies[63] == Approx(plain.frequencies[63] / 4));
  // Pairs 23.6 and 39.7 turn 32 times and once: between their whole neighbours, 23 and 40, it blends.
  CHECK(stretched.frequencies[23] == plain.frequencies[23]);
  CHECK(stretched.frequencies[24] == Approx(plain.frequencies[24] * (1 - 0.75 / 17)));
  CHECK(stretched.frequencies[40] == Approx(plain.frequencies[40] / 4));

  json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  CHECK(FrequenciesOf(Parse(With(QwenCoder(), "rope_scaling", linear))).frequencies[0] == 0.5f);
}

TEST_CASE("what cannot be computed is refused by name") {
  using Catch::Contains;
  CHECK_THAT(Refusal(With(QwenCoder(), "model_type", "gemma2")),
             Contains("config.json: model_type is \"gemma2\": unknown architecture"));
  CHECK_THAT(Refusal(With(QwenCoder(), "model_type", nullptr)), Contains("model_type is missing"));
  CHECK_THAT(Refusal(With(QwenCoder(), "hidden_act", "gelu")), Contains("only silu"));
  CHECK_THAT(Refusal(With(Llama(), "attention_bias", true)), Contains("attention_bias is true"));
  CHECK_THAT(Refusal(With(Llama(), "mlp_bias", true)), Contains("mlp_bias is true"));
  CHECK_THAT(Refusal(With(Llama(), "attention_dropout", 0.1)), Contains("attention_dropout is 0.1"));
  CHECK_THAT(Refusal(With(Llama(), "quantization_config", json::object())), Contains("quantised already"));
  CHECK_THAT(Refusal(With(QwenCoder(), "torch_dtype", "float8_e4m3fn")), Contains("torch_dtype is \"float8"));
  CHECK_THAT(Refusal(With(QwenCoder(), "hidden_size", -4)), Contains("must be a positive integer"));
  CHECK_THAT(Refusal(With(QwenCoder(), "hidden_size", "big")), Contains("hidden_size is \"big\""));
  CHECK_THAT(Refusal(With(QwenCoder(), "hidden_size", 1LL << 40)), Contains("hidden_size"));
  CHECK_THAT(Refusal(With(QwenCoder(), "num_key_value_heads", 5)),
             Contains("no multiple of num_key_value_heads (5)"));
  CHECK_THAT(Refusal(With(QwenCoder(), "head_dim", 63)), Contains("must be even"));
  CHECK_THAT(Refusal(With(QwenCoder(), "rms_norm_eps", 0)), Contains("greater than 0"));
  CHECK_THAT(Refusal(With(Moe(), "num_experts_per_tok", 129)), Contains("there are 128 experts"));
  CHECK_THAT(Refusal(With(QwenCoder(), "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}})),
             Contains("config.json, rope_scaling: type is \"dynamic\": unknown scaling"));
  CHECK_THAT(Refusal(With(QwenCoder(), "rope_scaling", {{"type", "yarn"}})), Contains("factor is missing"));
  CHECK_THAT(Refusal(With(QwenCoder(), "rope_parameters", {{"sliding_attention", json::object()}})),
             Contains("per kind of layer"));
  CHECK_THAT(Refusal(With(QwenCoder(), "layer_types", {"full_attention", "sliding_attention"})),
             Contains("only full_attention"));
  json sliding = With(QwenCoder(), "use_sliding_window", true);
  CHECK(Refusal(sliding) == "accepted");  // max_window_layers: none of the 28 slides
  CHECK_THAT(Refusal(With(sliding, "max_window_layers", 21)), Contains("sliding windows are not supported"));
  CHECK_THAT(Refusal(json::array()), Contains("config.json is no JSON object"));
  CHECK_THROWS_WITH(ParseModelConfig("{\"a\": ", "", "config.json"),
                    Contains("config.json is not JSON: wrong at byte"));
}

TEST_CASE("a folder is read, and one without config.json is not") {
  const TempFolder folder;
  CHECK_THROWS_WITH(ReadModelConfig(folder.path()), Catch::Contains("config.json does not exist"));
  std::ofstream(folder.path() / "config.json") << QwenCoder().dump();
  CHECK(ReadModelConfig(folder.path()).generation.end_tokens.size() == 1);
  std::ofstream(folder.path() / "generation_config.json") << R"({"eos_token_id": [1, 2]})";
  CHECK(ReadModelConfig(folder.path()).generation.end_tokens == std::vector<int32_t>{1, 2});
}

}  // namespace kevin::testing
