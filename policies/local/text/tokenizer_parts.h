#pragma once
// Tokens that are looked for in the text before anything else splits it: <|im_start|>, <tool_call>, ...

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "policies/local/text/pre_tokenizer.h"

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

// Byte-pair encoding of one word: its bytes become symbols, and the pair with the lowest rank, of equals the
// leftmost, is merged until no pair has one. n log n in the length of the word.

class BytePairs {
 public:
  struct Merge {
    int32_t left = 0, right = 0;  // token ids
    int32_t merged = 0;
  };
  // `merges` in the order of their ranks; a pair that comes twice has its last rank.
  BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges);

  // Space for Encode, kept from word to word; owned by one thread.
  struct Workspace {
    struct Symbol {
      int32_t id;
      int previous, next;  // indices, -1 at the ends
      bool alive;
    };
    struct Candidate {
      int32_t rank;
      int position;
      int32_t merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };
  void Encode(std::string_view word, Workspace& workspace,
              std::vector<int32_t>& ids) const;  // appends to ids

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    int32_t rank = 0, merged = 0;
  };
  static constexpr uint64_t kEmpty = ~0ULL;
  Slot& SlotOf(uint64_t pair);
  const Slot* Find(int32_t left, int32_t right) const;
  void Offer(int position, Workspace& workspace) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, at most half full
  uint64_t mask_ = 0;
};

// What a tokenizer is made of, read from tokenizer.json by tokenizer_file.cc and put to use by tokenizer.cc.

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds =
    std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;  // by the text in the file

struct TokenizerParts {
  std::filesystem::path file;
  bool nfc = false;
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  TokenIds vocabulary;         // of the model; a superset of what merging can reach
  TokenIds added;
  std::vector<std::string> bytes;  // by id; empty: no such token
  std::vector<bool> special;       // by id
  AddedTokenFinder raw_tokens{{}}, normalized_tokens{{}};
  PreTokenizer pre_tokenizer{{}, false, 0};
  BytePairs pairs{{}, {}};
  std::vector<int32_t> before, after;  // what the post-processor puts around a text
};

// Throws Error(kBadRequest) as Tokenizer::Load describes.
std::unique_ptr<const TokenizerParts> ReadTokenizerFile(const std::filesystem::path& file);

}  // namespace kevin::local
