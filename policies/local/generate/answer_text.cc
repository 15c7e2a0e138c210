#include "policies/local/generate/answer_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace kevin::local {

AnswerText::AnswerText(std::unique_ptr<TokenText> text, std::vector<std::string> stop_texts)
    : text_(std::move(text)), stop_texts_(std::move(stop_texts)) {}

std::string AnswerText::Add(int32_t id) { return text_ == nullptr ? "" : Take(text_->Add(id), false); }

std::string AnswerText::Finish() { return text_ == nullptr ? "" : Take(text_->Finish(), true); }

std::string AnswerText::Take(const std::string& piece, bool is_last) {
  if (stopped_) return "";
  held_ += piece;
  size_t stop = std::string::npos;
  for (const std::string& text : stop_texts_) stop = std::min(stop, held_.find(text));
  stopped_ = stop != std::string::npos;
  const size_t certain = stopped_ ? stop : held_.size() - (is_last ? 0 : HeldBack());
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

// The length of the longest end that a stop text begins with.
size_t AnswerText::HeldBack() const {
  size_t longest = 0;
  const std::string_view held = held_;
  for (const std::string& text : stop_texts_) {
    for (size_t length = std::min(text.size() - 1, held.size()); length > longest; --length) {
      if (held.ends_with(std::string_view(text).substr(0, length))) longest = length;
    }
  }
  return longest;
}

}  // namespace kevin::local
