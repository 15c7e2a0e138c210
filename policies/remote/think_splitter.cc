#include "policies/remote/think_splitter.h"

#include <cctype>

namespace kevin::remote {
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

}  // namespace kevin::remote
