#pragma once
// What a response has come to so far, whatever the wire format.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/remote/think_splitter.h"

namespace kevin::remote {

struct ServerError {
  std::string type, code, message;  // as the server spells them; any may be empty
};

// Filled by the readers of wire.h, piece by piece; read when the response has ended.
class Answer {
 public:
  explicit Answer(OnText on_text) : on_text_(std::move(on_text)) {}

  // `choice` counts from 0. Inline <think> blocks in the text go to the reasoning.
  void AddText(size_t choice, const std::string& piece);
  void AddReasoning(size_t choice, const std::string& piece);
  void AddTokens(size_t choice, const std::vector<int32_t>& ids, const std::vector<float>& logprobs);
  void SetTokens(size_t choice, std::vector<int32_t> ids, std::vector<float> logprobs);
  void Stop(size_t choice, StopReason reason, const std::string& cause);

  // Every choice has said why it ended, or the server that it is done.
  bool IsComplete() const;
  bool HasText() const { return has_text_; }  // or reasoning

  // The answer as a completion, when all has arrived.
  Completion Finish();

  std::vector<int32_t> prompt_token_ids;
  std::optional<Usage> usage;  // final
  // Notes of wires whose events repeat or refine what came before.
  Usage usage_so_far;
  std::string text_so_far;
  size_t tokens_so_far = 0;
  std::optional<ServerError> error;
  std::string model, id;   // as the server says
  ModelIdentity identity;  // likewise
  std::string stop_cause;  // of the first choice
  bool done = false;       // the server said that nothing more comes

 private:
  struct Part {
    OtherAnswer choice;
    ThinkSplitter splitter;
    std::string shown;  // what on_text got
    bool stopped = false;
  };
  Part& At(size_t choice);
  void Append(size_t choice, const ThinkSplitter::Pieces& pieces);

  OnText on_text_;
  std::vector<Part> parts_;
  bool has_text_ = false;
};

}  // namespace kevin::remote
