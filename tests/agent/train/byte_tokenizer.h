#pragma once
// A byte-level tokenizer.json without merges: a token for each byte, 0 to 255, and those given besides.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kevin {

// How byte-level tokenizers spell a byte: itself where it is printable, else a letter above 255.
inline std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> alphabet;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_shown = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    const int code = is_shown ? byte : next++;
    std::string letter;
    if (code < 128) {
      letter = static_cast<char>(code);
    } else {
      letter = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    }
    alphabet.push_back(letter);
  }
  return alphabet;
}

inline nlohmann::json ByteTokenizer(const nlohmann::json& added_tokens) {
  nlohmann::json vocabulary = nlohmann::json::object();
  const std::vector<std::string> alphabet = ByteAlphabet();
  for (size_t i = 0; i < alphabet.size(); ++i) vocabulary[alphabet[i]] = i;
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", added_tokens},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
}

}  // namespace kevin
