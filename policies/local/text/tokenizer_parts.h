#pragma once
// What a tokenizer is made of, read from tokenizer.json by tokenizer_file.cc and put to use by tokenizer.cc.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "policies/local/text/added_tokens.h"
#include "policies/local/text/byte_pairs.h"
#include "policies/local/text/pre_tokenizer.h"

namespace kevin::local {

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
