#include "policies/local/text/tokenizer.h"

#include <deque>
#include <stdexcept>
#include <unordered_map>

#include "env/error.h"
#include "policies/local/text/tokenizer_parts.h"
#include "policies/local/text/utf8.h"

namespace kevin::local {
namespace {

constexpr size_t kLongestRemembered = 128;  // bytes of a word

// One call of Encode. The ids of a repeated word are copied from its first occurrence in the result.
class Encoding {
 public:
  explicit Encoding(const TokenizerParts& parts) : parts_(parts) {}

  std::vector<int32_t> Run(std::string_view valid_text, bool parse_special) {
    for (const auto& stretch : parts_.raw_tokens.Split(valid_text, parse_special)) {
      if (stretch.id >= 0) {
        ids_.push_back(stretch.id);
      } else if (parts_.nfc) {
        normalized_.push_back(ToNfc(stretch.text));
        AddNormalized(normalized_.back(), parse_special);
      } else {
        AddNormalized(stretch.text, parse_special);
      }
    }
    return std::move(ids_);
  }

 private:
  void AddNormalized(std::string_view text, bool parse_special) {
    for (const auto& stretch : parts_.normalized_tokens.Split(text, parse_special)) {
      if (stretch.id >= 0) {
        ids_.push_back(stretch.id);
      } else {
        parts_.pre_tokenizer.Split(stretch.text, [this](std::string_view word) { AddWord(word); });
      }
    }
  }

  void AddWord(std::string_view word) {
    const size_t begin = ids_.size();
    if (!parts_.pre_tokenizer.Stable() || word.size() > kLongestRemembered) return EncodeWord(word);
    const auto [found, fresh] = known_.try_emplace(word, Place{begin, 0});
    if (fresh) {
      EncodeWord(word);
      found->second.count = ids_.size() - begin;
      return;
    }
    const Place place = found->second;
    for (size_t i = 0; i < place.count; ++i) ids_.push_back(ids_[place.begin + i]);
  }

  void EncodeWord(std::string_view word) {
    if (parts_.ignore_merges) {
      const auto whole = parts_.vocabulary.find(BytesAsText(word));
      if (whole != parts_.vocabulary.end()) return ids_.push_back(whole->second);
    }
    parts_.pairs.Encode(word, workspace_, ids_);
  }

  struct Place {
    size_t begin, count;
  };
  const TokenizerParts& parts_;
  std::deque<std::string> normalized_;  // what the words in known_ are parts of
  std::unordered_map<std::string_view, Place> known_;
  BytePairs::Workspace workspace_;
  std::vector<int32_t> ids_;
};

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::Load(const std::filesystem::path& model_folder) {
  return std::make_shared<Tokenizer>(ReadTokenizerFile(model_folder / "tokenizer.json"));
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool parse_special) const {
  try {
    if (IsUtf8(text)) return Encoding(*parts_).Run(text, parse_special);
    const std::string repaired = LossyUtf8(text);
    return Encoding(*parts_).Run(repaired, parse_special);
  } catch (const std::runtime_error& problem) {
    throw Error(ExitCode::kBadRequest,
                parts_->file.string() + ": its pre_tokenizer cannot split the text: " + problem.what());
  }
}

std::vector<int32_t> Tokenizer::WithTemplate(std::vector<int32_t> ids) const {
  ids.insert(ids.begin(), parts_->before.begin(), parts_->before.end());
  ids.insert(ids.end(), parts_->after.begin(), parts_->after.end());
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special || !IsSpecial(id)) bytes += Bytes(id);
  }
  return LossyUtf8(bytes);
}

std::optional<int32_t> Tokenizer::Id(std::string_view token) const {
  for (const TokenIds* tokens : {&parts_->added, &parts_->vocabulary}) {
    if (const auto found = tokens->find(token); found != tokens->end()) return found->second;
  }
  return std::nullopt;
}

int Tokenizer::VocabularySize() const { return static_cast<int>(parts_->bytes.size()); }

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < parts_->special.size() && parts_->special[id];
}

std::string_view Tokenizer::Bytes(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= parts_->bytes.size()) return {};
  return parts_->bytes[id];
}

std::string StreamDecoder::Add(int32_t id) {
  if (!skip_special_ || !tokenizer_->IsSpecial(id)) pending_ += tokenizer_->Bytes(id);
  return TakeWholeCharacters(pending_);
}

std::string StreamDecoder::Finish() { return LossyUtf8(std::exchange(pending_, {})); }

}  // namespace kevin::local
