#pragma once
// The text of one answer as its tokens come, cut before the first stop text.

#include <memory>
#include <string>
#include <vector>

#include "policies/local/generate/engine.h"

namespace kevin::local {

class AnswerText {
 public:
  // `text` may be null: then there is none.
  AnswerText(std::unique_ptr<TokenText> text, std::vector<std::string> stop_texts);

  // What is certain now. What may be the beginning of a stop text waits for what follows.
  std::string Add(int32_t id);
  // No token follows.
  std::string Finish();
  bool is_stopped() const { return stopped_; }  // a stop text was met; nothing comes after that

 private:
  std::string Take(const std::string& piece, bool is_last);
  size_t HeldBack() const;

  std::unique_ptr<TokenText> text_;
  std::vector<std::string> stop_texts_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kevin::local
