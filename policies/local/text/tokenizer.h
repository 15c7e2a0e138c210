#pragma once
// Text to token ids and back: byte-level BPE as tokenizer.json describes it for the Qwen2, Qwen2.5, QwQ,
// Qwen3 and Llama 3 families, id for id what the `tokenizers` library gives.
//
// A tokenizer never changes once loaded: any number of threads may use one. Text is UTF-8; bytes that are
// none become U+FFFD, one for each maximal part of a broken character, as in Python's and Rust's lossy
// decoding.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kevin::local {

struct TokenizerParts;  // tokenizer_parts.h

class Tokenizer {
 public:
  // Reads `model_folder`/tokenizer.json, which need not be trusted. Throws Error(kBadRequest) with the file
  // and the reason: unreadable, larger than 256 MiB, no JSON, another kind of tokenizer, an unknown step, a
  // merge of tokens that do not exist, an id twice or out of range, a byte without a token.
  static std::shared_ptr<const Tokenizer> Load(const std::filesystem::path& model_folder);
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  ~Tokenizer();

  // Without what the model expects around a text (see WithTemplate). Special tokens that stand in the text
  // count as such; with `parse_special` false they are plain text, so that a person cannot write a turn of
  // the assistant. Throws Error(kBadRequest) when the file's expression takes unreasonably long on this text.
  std::vector<int32_t> Encode(std::string_view text, bool parse_special = true) const;

  // The ids with what the file's post-processor puts around a text: for Llama 3 <|begin_of_text|> in front,
  // for Qwen nothing. Chat templates write these tokens themselves.
  std::vector<int32_t> WithTemplate(std::vector<int32_t> ids) const;

  // An id without a token (models pad their vocabularies) is nothing; with `skip_special` special ones are
  // too. transformers' clean_up_tokenization_spaces, which takes blanks out of code, is not done.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // Of a token as tokenizer.json writes it: "<|im_end|>", "Ġthe".
  std::optional<int32_t> Id(std::string_view token) const;
  int VocabularySize() const;        // the largest id + 1
  bool IsSpecial(int32_t id) const;  // false for ids out of range

  // What the token stands for, which may be part of a character. Empty for an id without a token. Lives as
  // long as the tokenizer.
  std::string_view Bytes(int32_t id) const;

 private:
  std::unique_ptr<const TokenizerParts> parts_;
};

// Decode, one token at a time. What is handed out is whole characters; the pieces and Finish's put together
// are what Decode gives for all ids. Used by one thread at a time.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}
  std::string Add(int32_t id);  // may be empty
  std::string Finish();         // U+FFFD for a character left unfinished, else empty; begins anew

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace kevin::local
