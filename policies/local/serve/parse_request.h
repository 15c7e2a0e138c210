#pragma once
// A request's body -> what the engine is asked, and how to put what it answers. Fields are OpenAI's and
// vLLM's. What would change the answer and is not to be had is refused (ApiError); other unknown fields are
// ignored.

#include <memory>
#include <string>
#include <vector>

#include "policies/local/generate/engine.h"
#include "policies/local/serve/api_error.h"
#include "policies/local/serve/served_model.h"
#include "policies/local/serve/top_logprobs.h"

namespace kevin::local {

struct AnswerFormat {
  bool is_chat = false;
  bool stream = false, include_usage = false;
  bool logprobs = false;
  int top_logprobs = 0;        // chat: the most likely tokens beside the drawn one
  bool of_drawn_from = false;  // logprobs under the distribution drawn from; else the model's own
  bool token_ids = false;      // of prompt and answer
  bool opens_thought = false;  // the prompt ends within <think>
};

struct ParsedRequest {
  std::vector<GenerationRequest> prompts;  // more than one: completions only; answers are counted through
  AnswerFormat format;
  std::shared_ptr<TopLogprobs> top_logprobs;  // null: not asked for
};

// `seed`: for a request that has none.
ParsedRequest ParseChat(const Json& body, const ServedModel& model, uint64_t seed);
ParsedRequest ParseCompletion(const Json& body, const ServedModel& model, uint64_t seed);
// vLLM's /tokenize: a prompt or a chat.
std::vector<int32_t> ParseTokenize(const Json& body, const ServedModel& model);

}  // namespace kevin::local
