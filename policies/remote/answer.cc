#include "policies/remote/answer.h"

#include <algorithm>
#include <cctype>

#include "policies/remote/json.h"

namespace kevin::remote {

// --- Server-sent events ---

bool SseParser::Feed(std::string_view bytes) {
  progress_ = false;
  for (const char c : bytes) {
    if (c == '\n' && after_cr_) {
      after_cr_ = false;
      continue;
    }
    after_cr_ = c == '\r';
    if (c == '\n' || c == '\r') {
      TakeLine();
    } else {
      line_ += c;
    }
  }
  return progress_;
}

void SseParser::Finish() {
  line_.clear();
  Dispatch();
}

void SseParser::TakeLine() {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::string_view line = line_;
  if (at_start_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  at_start_ = false;
  if (line.empty()) {
    Dispatch();
  } else if (line.front() == ':') {
    progress_ = true;
  } else {
    const size_t colon = line.find(':');
    const std::string_view field = line.substr(0, colon);
    std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (field == "event") name_ = value;
    if (field == "data") {
      if (has_data_) data_ += '\n';
      data_ += value;
      has_data_ = true;
    }
  }
  line_.clear();
}

void SseParser::Dispatch() {
  const SseEvent event{std::move(name_), std::move(data_)};
  const bool has_data = has_data_;
  name_.clear();
  data_.clear();
  has_data_ = false;
  if (!has_data) return;
  progress_ = true;
  on_event_(event);
}

// --- Inline reasoning ---

namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";
bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

}  // namespace

ThinkSplitter::Pieces ThinkSplitter::Feed(std::string_view piece) {
  Pieces pieces;
  for (size_t i = 0; i < piece.size(); ++i) {
    if (state_ == State::kText) {
      pieces.text += piece.substr(i);
      break;
    }
    Take(piece[i], &pieces);
  }
  return pieces;
}

void ThinkSplitter::Take(char c, Pieces* pieces) {
  held_ += c;
  if (state_ == State::kStart) {
    size_t blank = 0;
    while (blank < held_.size() && IsSpace(held_[blank])) ++blank;
    const std::string_view rest = std::string_view(held_).substr(blank);
    if (rest == kOpen) {
      state_ = State::kThinking;
      held_.clear();
    } else if (!kOpen.starts_with(rest)) {
      state_ = State::kText;
      pieces->text += held_;
      held_.clear();
    }
    return;
  }
  if (state_ == State::kAfter) {
    if (IsSpace(c)) {
      held_.clear();
      return;
    }
    state_ = State::kText;
    pieces->text += held_;
    held_.clear();
    return;
  }
  if (held_ == kClose) {
    state_ = State::kAfter;
    held_.clear();
  }
  while (!kClose.starts_with(held_)) {
    pieces->reasoning += held_.front();
    held_.erase(0, 1);
  }
}

ThinkSplitter::Pieces ThinkSplitter::Finish() {
  Pieces pieces;
  (state_ == State::kThinking ? pieces.reasoning : pieces.text) = held_;
  held_.clear();
  return pieces;
}

bool SplitUnopenedThought(std::string* text, std::string* reasoning) {
  const size_t close = text->rfind(kClose);
  if (close == std::string::npos || text->find(kOpen) < close) return false;
  size_t begin = close + kClose.size();
  while (begin < text->size() && IsSpace((*text)[begin])) ++begin;
  *reasoning = text->substr(0, close) + *reasoning;
  *text = text->substr(begin);
  return true;
}

// --- The answer ---

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
