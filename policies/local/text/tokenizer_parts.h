#pragma once
// The parts of a tokenizer: added tokens, byte pairs and the tables read from tokenizer.json
// (tokenizer_file.cc). Internal: tokenizer.h is the interface.

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

// A token that is searched in the text before the text is split: <|im_start|>, <tool_call>, ...
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only between characters other than letters, digits and underscores
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // ... after it
  bool normalized = false;   // searched in the normalised text
  bool special = false;      // a control token, not text
};

// Finds added tokens in a text. Immutable; any thread.
class AddedTokenFinder {
 public:
  // Each token with its search text, which is not empty.
  explicit AddedTokenFinder(const std::vector<std::pair<std::string, AddedToken>>& tokens);

  // A part of the text; `id` is -1 where it is no token.
  struct Stretch {
    std::string_view text;
    int32_t id = -1;
  };
  // Splits the whole text from left to right into non-empty parts. Of tokens that begin at the same place the
  // longest matches. With `parse_special` false, special tokens are not matched.
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

// Byte-pair encoding of one word: its bytes become symbols; the adjacent pair with the lowest rank (the
// leftmost among equals) is merged until no pair has a rank. O(n log n) in the length of the word.
class BytePairs {
 public:
  struct Merge {
    int32_t left = 0, right = 0;  // token ids
    int32_t merged = 0;
  };
  // `merges`: by rank; of a duplicate pair the last rank counts.
  BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges);

  // Buffers of Encode, reused from word to word; owned by one thread.
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

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds =
    std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;  // by the text in the file

struct TokenizerParts {
  std::filesystem::path file;
  bool nfc = false;
  bool ignore_merges = false;  // a word that is itself a token is not merged
  TokenIds vocabulary;         // of the model; merging may not reach all of it
  TokenIds added;
  std::vector<std::string> bytes;  // by id; empty: no such token
  std::vector<bool> special;       // by id
  AddedTokenFinder raw_tokens{{}}, normalized_tokens{{}};
  PreTokenizer pre_tokenizer{{}, false, 0};
  BytePairs pairs{{}, {}};
  std::vector<int32_t> before, after;  // ids that the post-processor puts around a text
};

// Throws Error(kBadRequest) as Tokenizer::Load describes.
std::unique_ptr<const TokenizerParts> ReadTokenizerFile(const std::filesystem::path& file);

}  // namespace kevin::local
