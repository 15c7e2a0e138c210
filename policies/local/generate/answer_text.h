#pragma once
// The text of one answer, token by token, up to the first stop text.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policies/local/generate/engine.h"

namespace kevin::local {

class AnswerText {
 public:
  // `text` may be null: no text then.
  AnswerText(std::unique_ptr<TokenText> text, std::vector<std::string> stop_texts);

  // Returns the text that is certain now; the possible beginning of a stop text is held back.
  std::string Add(int32_t id);
  // Returns the rest, after the last token.
  std::string Finish();
  bool is_stopped() const { return stopped_; }  // a stop text was met; no text follows

 private:
  std::string Take(const std::string& piece, bool is_last);
  size_t HeldBack() const;

  std::unique_ptr<TokenText> text_;
  std::vector<std::string> stop_texts_;
  std::string held_;
  bool stopped_ = false;
};

inline AnswerText::AnswerText(std::unique_ptr<TokenText> text, std::vector<std::string> stop_texts)
    : text_(std::move(text)), stop_texts_(std::move(stop_texts)) {}

inline std::string AnswerText::Add(int32_t id) { return text_ == nullptr ? "" : Take(text_->Add(id), false); }

inline std::string AnswerText::Finish() { return text_ == nullptr ? "" : Take(text_->Finish(), true); }

inline std::string AnswerText::Take(const std::string& piece, bool is_last) {
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

// The length of the longest suffix that is a prefix of a stop text.
inline size_t AnswerText::HeldBack() const {
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
