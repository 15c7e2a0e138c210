#include "tests/bench/run_transformers.h"

#include <fmt/format.h>

#include <cstdio>

namespace kevin {

int RunTransformers(const local::ModelConfig& c, const std::string& script) {
  const std::string model = fmt::format(
      "import time, torch\n"
      "from transformers import Qwen2Config, Qwen2ForCausalLM\n"
      "config = Qwen2Config(hidden_size={}, num_hidden_layers={}, num_attention_heads={}, "
      "num_key_value_heads={},\n"
      "    intermediate_size={}, vocab_size={}, tie_word_embeddings={}, max_position_embeddings=8192)\n"
      "with torch.device('cuda'):\n"
      "    torch.set_default_dtype(torch.bfloat16)\n"
      "    model = Qwen2ForCausalLM(config)\n",
      c.hidden, c.layers, c.heads, c.kv_heads, c.ffn, c.vocabulary, c.tied_embeddings ? "True" : "False");
  std::FILE* python = popen("python3 -", "w");
  if (!python) return 1;
  std::fputs((model + script).c_str(), python);
  return pclose(python) == 0 ? 0 : 1;
}

}  // namespace kevin
