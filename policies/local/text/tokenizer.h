#pragma once
// Text to token ids and back: the byte-level BPE that tokenizer.json describes for the Qwen2, Qwen2.5, QwQ,
// Qwen3 and Llama 3 families. Ids are equal to those of the `tokenizers` library.
//
// A tokenizer is immutable; any number of threads may use it. Text is UTF-8; each maximal ill-formed part
// becomes one U+FFFD, as in the lossy decoding of Python and Rust.

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
  // Reads `model_folder`/tokenizer.json, which is not trusted. Throws Error(kBadRequest) with the file and
  // the reason: unreadable, larger than 256 MiB, invalid JSON, another kind of tokenizer, an unknown step, a
  // merge of unknown tokens, a duplicate id or one out of range, a byte without a token.
  static std::shared_ptr<const Tokenizer> Load(const std::filesystem::path& model_folder);
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  ~Tokenizer();

  // Without the ids around a text (see WithTemplate). Special tokens written in the text are matched; with
  // `parse_special` false they are plain text, so that a user cannot write a turn of the assistant. Throws
  // Error(kBadRequest) when the file's regular expression exceeds its step limit on this text.
  std::vector<int32_t> Encode(std::string_view text, bool parse_special = true) const;

  // Adds the ids that the file's post-processor puts around a text: <|begin_of_text|> for Llama 3, none for
  // Qwen. Chat templates write these tokens themselves.
  std::vector<int32_t> WithTemplate(std::vector<int32_t> ids) const;

  // An id without a token (vocabularies are padded) decodes to nothing, with `skip_special` also a special
  // one. Spaces are kept (no clean_up_tokenization_spaces, which would change code).
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // By the token's spelling in tokenizer.json: "<|im_end|>", "Ġthe".
  std::optional<int32_t> Id(std::string_view token) const;
  int VocabularySize() const;        // the largest id + 1
  bool IsSpecial(int32_t id) const;  // false for ids out of range

  // The bytes of a token, which may be part of a character. Empty for an id without a token. Valid during the
  // lifetime of the tokenizer.
  std::string_view Bytes(int32_t id) const;

 private:
  std::unique_ptr<const TokenizerParts> parts_;
};

// Decodes one token at a time into whole characters. The concatenation of all results is equal to Decode of
// all ids. One thread at a time.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}
  std::string Add(int32_t id);  // may be empty
  std::string Finish();         // U+FFFD for an incomplete character, else empty; then starts again

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace kevin::local
