#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "env/error.h"
#include "policies/local/text/byte_alphabet.h"
#include "policies/local/text/model_file.h"
#include "policies/local/text/steps_file.h"
#include "policies/local/text/tokenizer_parts.h"
#include "policies/local/text/utf8.h"

namespace kevin::local {
namespace {

using Json = nlohmann::json;
constexpr size_t kMostBytes = 256 << 20;
constexpr int64_t kMostIds = 1 << 24;
constexpr size_t kLongestToken = 64 << 10;

[[noreturn]] void Refuse(const std::string& reason) { throw std::invalid_argument(reason); }

std::string Quoted(const std::string& token) {
  return "\"" + (token.size() <= 80 ? token : token.substr(0, CharacterOffset(token, 40)) + "...") + "\"";
}

int32_t TokenId(const Json& id, const std::string& token) {
  if (!id.is_number_integer())
    Refuse(fmt::format("token {}: its id is {}, no integer", Quoted(token), id.type_name()));
  const bool fits = id.is_number_unsigned() ? id.get<uint64_t>() < kMostIds : false;
  if (!fits)
    Refuse(fmt::format("token {}: id {} is out of range (0 to {})", Quoted(token), id.dump(), kMostIds - 1));
  return id.get<int32_t>();
}

// Gives `id` what `token` stands for. A token that is not written in the alphabet of bytes stands for itself.
void SetBytes(TokenizerParts& parts, int32_t id, const std::string& token) {
  if (token.size() > kLongestToken) Refuse(fmt::format("token {} has {} bytes", Quoted(token), token.size()));
  if (static_cast<size_t>(id) >= parts.bytes.size()) {
    parts.bytes.resize(id + 1);
    parts.special.resize(id + 1);
  }
  parts.bytes[id] = TextAsBytes(token).value_or(token);
}

void ReadVocabulary(const Json& model, TokenizerParts& parts) {
  const auto vocabulary = model.find("vocab");
  if (vocabulary == model.end()) Refuse("model.vocab is missing");
  if (!vocabulary->is_object() || vocabulary->empty()) Refuse("model.vocab is no object with tokens");
  parts.vocabulary.reserve(vocabulary->size());
  parts.bytes.reserve(vocabulary->size());
  for (const auto& [token, id_json] : vocabulary->items()) {
    const int32_t id = TokenId(id_json, token);
    if (token.empty()) Refuse(fmt::format("model.vocab: token {} is empty", id));
    if (static_cast<size_t>(id) < parts.bytes.size() && !parts.bytes[id].empty()) {
      Refuse(fmt::format("model.vocab: id {} is given twice, to {} too", id, Quoted(token)));
    }
    SetBytes(parts, id, token);
    parts.vocabulary.emplace(token, id);
  }
}

std::pair<std::string, std::string> MergeHalves(const Json& merge, size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t blank = text.find(' ');
    if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos) {
      return {text.substr(0, blank), text.substr(blank + 1)};
    }
  }
  Refuse(fmt::format("model.merges: entry {} is no pair of tokens", index));
}

BytePairs ReadMerges(const Json& model, const TokenizerParts& parts) {
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) Refuse("model.merges is missing or no list");
  const auto id_of = [&](const std::string& token, size_t index) {
    const auto found = parts.vocabulary.find(token);
    if (found == parts.vocabulary.end()) {
      Refuse(fmt::format("model.merges: entry {} names {}, which model.vocab lacks", index, Quoted(token)));
    }
    return found->second;
  };
  std::vector<BytePairs::Merge> read;
  read.reserve(merges->size());
  for (const Json& merge : *merges) {
    const size_t index = read.size();
    const auto [left, right] = MergeHalves(merge, index);
    read.push_back({id_of(left, index), id_of(right, index), id_of(left + right, index)});
  }
  std::array<int32_t, 256> byte_ids{};
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& token = ByteAsText(static_cast<uint8_t>(byte));
    const auto found = parts.vocabulary.find(token);
    if (found == parts.vocabulary.end()) {
      Refuse(fmt::format("model.vocab lacks the byte 0x{:02X} (token {}): no byte-level tokenizer", byte,
                         Quoted(token)));
    }
    byte_ids[byte] = found->second;
  }
  return BytePairs(byte_ids, read);
}

void ReadModel(const Json& root, TokenizerParts& parts) {
  const auto model = root.find("model");
  if (model == root.end() || !model->is_object()) Refuse("it has no \"model\"");
  // Old files leave the type out where it is BPE.
  const Json type = model->value("type", Json("BPE"));
  if (type != "BPE") Refuse("model.type is " + type.dump() + "; only byte-level \"BPE\" is known");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json value = model->value(key, Json());
    if (!value.is_null() && value != "")
      Refuse(fmt::format("model.{} is {}; byte-level BPE has none", key, value.dump()));
  }
  const Json dropout = model->value("dropout", Json());
  if (!dropout.is_null() && dropout != 0)
    Refuse("model.dropout is " + dropout.dump() + ": ids would be random");
  const Json ignore_merges = model->value("ignore_merges", Json(false));
  if (!ignore_merges.is_boolean()) Refuse("model.ignore_merges is no boolean");
  parts.ignore_merges = ignore_merges.get<bool>();
  ReadVocabulary(*model, parts);
  parts.pairs = ReadMerges(*model, parts);
}

AddedToken ReadAddedToken(const Json& entry, size_t index) {
  const auto where = fmt::format("added_tokens: entry {}", index);
  if (!entry.is_object()) Refuse(where + " is no object");
  const Json content = entry.value("content", Json());
  if (!content.is_string()) Refuse(where + " has no \"content\"");
  AddedToken token;
  token.content = content.get<std::string>();
  token.id = TokenId(entry.value("id", Json()), token.content);
  const auto flag = [&](const char* key, bool otherwise) {
    const Json value = entry.value(key, Json(otherwise));
    if (!value.is_boolean()) Refuse(fmt::format("{}: \"{}\" is no boolean", where, key));
    return value.get<bool>();
  };
  token.special = flag("special", false);
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.normalized = flag("normalized", !token.special);
  return token;
}

void ReadAddedTokens(const Json& root, TokenizerParts& parts) {
  const Json list = root.value("added_tokens", Json::array());
  if (!list.is_array()) Refuse("added_tokens is no list");
  std::vector<std::pair<std::string, AddedToken>> raw, normalized;
  size_t index = 0;
  for (const Json& entry : list) {
    const AddedToken token = ReadAddedToken(entry, index++);
    if (token.content.empty()) continue;  // never found in a text
    const auto known = parts.vocabulary.find(token.content);
    if (known != parts.vocabulary.end() && known->second != token.id) {
      Refuse(fmt::format("added_tokens: {} has id {}, in model.vocab {}", Quoted(token.content), token.id,
                         known->second));
    }
    const bool taken = static_cast<size_t>(token.id) < parts.bytes.size() && !parts.bytes[token.id].empty();
    if ((known == parts.vocabulary.end() && taken) || !parts.added.emplace(token.content, token.id).second) {
      Refuse(fmt::format("added_tokens: {} or its id {} is given twice", Quoted(token.content), token.id));
    }
    SetBytes(parts, token.id, token.content);
    parts.special[token.id] = token.special;
    if (!token.normalized) {
      raw.emplace_back(token.content, token);
    } else {
      normalized.emplace_back(parts.nfc ? ToNfc(token.content) : token.content, token);
    }
  }
  parts.raw_tokens = AddedTokenFinder(raw);
  parts.normalized_tokens = AddedTokenFinder(normalized);
}

}  // namespace

std::unique_ptr<const TokenizerParts> ReadTokenizerFile(const std::filesystem::path& file) {
  const Json root = ReadModelJson(file, kMostBytes);
  try {
    if (!root.is_object()) Refuse("it is no JSON object");
    auto parts = std::make_unique<TokenizerParts>();
    parts->file = file;
    parts->nfc = ReadNormalizer(root);
    parts->pre_tokenizer = ReadPreTokenizer(root);
    CheckDecoder(root);
    ReadModel(root, *parts);
    ReadAddedTokens(root, *parts);
    ReadPostProcessor(root, static_cast<int32_t>(parts->bytes.size()), parts->before, parts->after);
    return parts;
  } catch (const std::invalid_argument& problem) {
    throw Error(ExitCode::kBadRequest, file.string() + ": " + problem.what(),
                "Tokenizers of the Qwen2, Qwen2.5, QwQ, Qwen3 and Llama 3 families are understood.");
  }
}

}  // namespace kevin::local
