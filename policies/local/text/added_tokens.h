#pragma once
// Tokens that are looked for in the text before anything else splits it: <|im_start|>, <tool_call>, ...

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kevin::local {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // counts only where no letter, digit or underscore touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // ... after it
  bool normalized = false;   // looked for in the normalised text
  bool special = false;      // for the model only, not for people
};

// Finds some of the tokens. Never changes once made; any thread.
class AddedTokenFinder {
 public:
  // Each with the text to look for, which is not empty.
  explicit AddedTokenFinder(const std::vector<std::pair<std::string, AddedToken>>& tokens);

  // A stretch of the text; `id` is -1 where it is no token.
  struct Stretch {
    std::string_view text;
    int32_t id = -1;
  };
  // From left to right, none of them empty, together the whole text; of tokens that begin at the same place
  // the longest. Special ones are passed over where `parse_special` is false.
  std::vector<Stretch> Split(std::string_view valid_text, bool parse_special) const;

 private:
  struct Node {  // of a trie over bytes
    std::vector<std::pair<uint8_t, int>> next;
    int token = -1;
  };
  int LongestAt(std::string_view text, size_t& length) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};  // whether some token begins with the byte
};

}  // namespace kevin::local
