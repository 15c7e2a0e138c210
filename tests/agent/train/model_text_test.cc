// The text side of a model folder: which token ends an answer that is learnt from its text.

#include "agent/train/model_text.h"

#include "tests/policies/local/text/text_fixture.h"

namespace kevin {
namespace {

using nlohmann::json;

// A folder with the vocabulary of the golden tokenizer, whose template writes `end` after an answer.
std::vector<int32_t> ReplyTokens(const std::string& end, const json& ends) {
  const local::ModelFolder folder;
  const json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"bos_token_id", 1500},
                       {"eos_token_id", ends},
                       {"hidden_act", "silu"},
                       {"hidden_size", 16},
                       {"intermediate_size", 32},
                       {"max_position_embeddings", 64},
                       {"num_attention_heads", 2},
                       {"num_hidden_layers", 1},
                       {"num_key_value_heads", 1},
                       {"rms_norm_eps", 1e-06},
                       {"rope_theta", 10000.0},
                       {"tie_word_embeddings", true},
                       {"torch_dtype", "float32"},
                       {"vocab_size", 1505}};
  folder.Write("config.json", config.dump());
  folder.Write("tokenizer.json", local::ReadText(local::Goldens() / "tokenizers/llama/tokenizer.json"));
  const std::string chat =
      "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content }}" + end +
      "{% endfor %}";
  folder.Write("tokenizer_config.json", json{{"chat_template", chat}}.dump());
  return LoadModelText(folder.path().string()).encode_reply("", "an answer");
}

}  // namespace

TEST_CASE(
    "an answer ends with the token that the template writes there, else with the first of the model's") {
  const json ends = {1501, 1503, 1504};  // end of text, another, end of turn
  CHECK(ReplyTokens("<|eot_id|>", ends).back() == 1504);
  CHECK(ReplyTokens("<|end_of_text|>", ends).back() == 1501);
  CHECK(ReplyTokens("\n", ends).back() == 1501);
  CHECK(ReplyTokens("<|eot_id|>", 1501).back() == 1501);
}

}  // namespace kevin
