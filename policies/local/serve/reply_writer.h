#pragma once
// Formats answers of the engine as replies of OpenAI's API with vLLM's token ids: as a stream of events, or
// whole.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "policies/local/serve/parse_request.h"
#include "policies/remote/answer.h"

namespace kevin::local {

// The origin of answers from these weights: weights_hash (ServedWeights::State::identity), weights_version,
// tokenizer_hash, chat_template_hash; null: unknown. Waits at most `patience` for a hash that is being
// computed.
Json IdentityJson(const ServedModel& model, const ServedWeights::State& weights,
                  std::chrono::seconds patience);

// One request's reply, with vLLM's fields and one of our own: `kevin`, the IdentityJson of the weights at its
// beginning. One thread.
class ReplyWriter {
 public:
  // `model` must outlive this.
  ReplyWriter(ParsedRequest request, const ServedModel& model);

  // `answer`: numbered over all prompts. Streaming: returns its events; otherwise keeps the piece and returns
  // "".
  std::string Take(int answer, const AnswerPiece& piece);
  bool IsComplete() const { return open_ == 0; }
  // Streaming: the last events; otherwise the whole reply.
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
  // A piece, split into text and reasoning.
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
