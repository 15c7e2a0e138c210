#pragma once
// Puts what an engine answers as OpenAI's API has it, with vLLM's token ids: as events of a stream, or whole.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "policies/local/serve/parse_request.h"
#include "policies/remote/answer.h"

namespace kevin::local {

// What answers from these weights come from: weights_hash, weights_version, tokenizer_hash,
// chat_template_hash; null is unknown. Waits so long for a hash that is being worked out.
Json IdentityJson(const ServedModel& model, const ServedWeights::State& weights,
                  std::chrono::seconds patience);

// One request's reply, with vLLM's fields and one of our own: `kevin`, IdentityJson of the weights that it
// began with. One thread.
class ReplyWriter {
 public:
  // `model` outlives this.
  ReplyWriter(ParsedRequest request, const ServedModel& model);

  // `answer` counts through all prompts' answers. Streaming: the events for it; else nothing, it is kept.
  std::string Take(int answer, const AnswerPiece& piece);
  bool IsComplete() const { return open_ == 0; }
  // Streaming: the last events; else the whole reply.
  std::string Finish();

 private:
  struct Choice {
    remote::ThinkSplitter splitter;
    std::string text, reasoning;  // of a whole reply
    std::vector<SampledToken> tokens;
    std::vector<TopLogprobs::Likely> tops;
    size_t token_count = 0, reasoning_tokens = 0, cached_tokens = 0, text_length = 0;
    bool has_begun = false, has_text = false;
    FinishReason finish = FinishReason::kStop;
  };
  // What a piece comes to.
  struct Delta {
    std::string text, reasoning;
    std::vector<SampledToken> tokens;
    std::vector<TopLogprobs::Likely> tops;
    bool is_last = false;
  };
  Delta DeltaOf(int answer, const AnswerPiece& piece);
  std::string Event(int answer, const Delta& delta);
  Json ChoiceJson(int answer, const Delta& delta, bool is_whole);
  Json ChatPart(Choice& choice, const Delta& delta, bool is_whole) const;
  Json Logprobs(Choice& choice, const Delta& delta) const;
  Json ChatLogprobs(const Delta& delta) const;
  Json Head(bool is_chunk) const;
  void AddIdentity(Json* reply) const;
  Json UsageJson() const;
  const std::vector<int32_t>& PromptOf(int answer) const;

  const ParsedRequest request_;
  const ServedModel& model_;
  const ServedWeights::State weights_;
  const std::string id_;
  const int64_t created_;
  std::vector<Choice> choices_;
  size_t open_;
  std::string error_;  // why an answer failed
};

}  // namespace kevin::local
