#include "policies/remote/answer.h"

#include <algorithm>

#include "policies/remote/json.h"

namespace kevin::remote {
namespace {

constexpr size_t kMostChoices = 1024;

}  // namespace

Answer::Part& Answer::At(size_t choice) {
  choice = std::min(choice, kMostChoices);
  if (parts_.size() <= choice) parts_.resize(choice + 1);
  return parts_[choice];
}

void Answer::AddText(size_t choice, const std::string& piece) {
  has_text_ |= !piece.empty();
  Append(choice, At(choice).splitter.Feed(piece));
}

void Answer::AddReasoning(size_t choice, const std::string& piece) {
  has_text_ |= !piece.empty();
  At(choice).choice.reasoning += piece;
}

void Answer::Append(size_t choice, const ThinkSplitter::Pieces& pieces) {
  Part& part = At(choice);
  part.choice.text += pieces.text;
  part.choice.reasoning += pieces.reasoning;
  if (choice == 0 && on_text_ && !pieces.text.empty()) {
    part.shown += pieces.text;
    on_text_(pieces.text);
  }
}

void Answer::AddTokens(size_t choice, const std::vector<int32_t>& ids, const std::vector<float>& logprobs) {
  OtherAnswer& c = At(choice).choice;
  c.token_ids.insert(c.token_ids.end(), ids.begin(), ids.end());
  c.logprobs.insert(c.logprobs.end(), logprobs.begin(), logprobs.end());
}

void Answer::SetTokens(size_t choice, std::vector<int32_t> ids, std::vector<float> logprobs) {
  At(choice).choice.token_ids = std::move(ids);
  At(choice).choice.logprobs = std::move(logprobs);
}

void Answer::Stop(size_t choice, StopReason reason, const std::string& cause) {
  Part& part = At(choice);
  part.stopped = true;
  part.choice.stop_reason = StopReasonName(reason);
  if (choice == 0) stop_cause = cause;
}

bool Answer::IsComplete() const {
  const auto stopped = [](const Part& part) { return part.stopped; };
  return done || (!parts_.empty() && std::all_of(parts_.begin(), parts_.end(), stopped));
}

Completion Answer::Finish() {
  At(0);
  for (size_t i = 0; i < parts_.size(); ++i) {
    Append(i, parts_[i].splitter.Finish());
    OtherAnswer& choice = parts_[i].choice;
    SplitUnopenedThought(&choice.text, &choice.reasoning);
    choice.text = ValidUtf8(choice.text);
    choice.reasoning = ValidUtf8(choice.reasoning);
    if (choice.stop_reason.empty()) choice.stop_reason = StopReasonName(StopReason::kUnknown);
  }
  Completion completion;
  const OtherAnswer& first = parts_.front().choice;
  if (on_text_ && parts_.front().shown != first.text) {
    on_text_("");
    if (!first.text.empty()) on_text_(first.text);
  }
  completion.text = first.text;
  completion.reasoning = first.reasoning;
  completion.token_ids = first.token_ids;
  completion.logprobs = first.logprobs;
  completion.stop_reason = first.stop_reason;
  completion.prompt_token_ids = prompt_token_ids;
  completion.usage = usage.value_or(Usage{});
  completion.model = model;
  completion.identity = identity;
  for (size_t i = 1; i < parts_.size(); ++i) completion.others.push_back(parts_[i].choice);
  return completion;
}

}  // namespace kevin::remote
