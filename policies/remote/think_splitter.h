#pragma once
// Takes inline reasoning out of an answer's text. Models that think aloud put it first, between <think> and
// </think>; where the chat template has opened the block already, the text only closes it.

#include <string>
#include <string_view>

namespace kevin::remote {

class ThinkSplitter {
 public:
  struct Pieces {
    std::string text, reasoning;  // what is certain so far, to be appended
  };
  Pieces Feed(std::string_view piece);
  Pieces Finish();  // what was held back

 private:
  enum class State { kStart, kThinking, kAfter, kText };
  void Take(char c, Pieces* pieces);

  State state_ = State::kStart;
  std::string held_;  // might be the beginning of a tag
};

// A whole text that closes a block which it never opened: what comes before the last </think> is reasoning.
// Returns whether there was one; then *text keeps the rest and *reasoning gets the beginning in front.
bool SplitUnopenedThought(std::string* text, std::string* reasoning);

}  // namespace kevin::remote
