#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "env/error.h"
#include "policies/local/files/model_config.h"
#include "policies/local/text/tokenizer_parts.h"
#include "policies/local/text/utf8.h"

namespace kevin::local {

namespace {

using Json = nlohmann::json;
constexpr size_t kMostSteps = 64;
constexpr size_t kLongestPattern = 16 << 10;

[[noreturn]] void RefuseStep(const std::string& reason) { throw std::invalid_argument(reason); }

std::string TypeOf(const Json& step, const char* where) {
  const Json type = step.is_object() ? step.value("type", Json()) : Json();
  if (!type.is_string()) RefuseStep(fmt::format("{}: a step has no \"type\"", where));
  return type.get<std::string>();
}

// The steps, with Sequences expanded.
void Flatten(const Json& step, const char* where, const char* list_key, std::vector<Json>& steps) {
  if (step.is_null()) return;
  if (TypeOf(step, where) != "Sequence") {
    if (steps.size() == kMostSteps) RefuseStep(fmt::format("{} has more than {} steps", where, kMostSteps));
    steps.push_back(step);
    return;
  }
  const auto list = step.find(list_key);
  if (list == step.end() || !list->is_array())
    RefuseStep(fmt::format("{}: a Sequence has no \"{}\"", where, list_key));
  for (const Json& inner : *list) {
    // Nested Sequences do not occur in practice; rejecting them bounds the depth.
    if (TypeOf(inner, where) == "Sequence")
      RefuseStep(fmt::format("{}: a Sequence within a Sequence", where));
    Flatten(inner, where, list_key, steps);
  }
}

std::vector<Json> Steps(const Json& root, const char* where, const char* list_key) {
  std::vector<Json> steps;
  Flatten(root.value(where, Json()), where, list_key, steps);
  return steps;
}

bool Flag(const Json& step, const char* key, bool otherwise) {
  const Json value = step.value(key, Json(otherwise));
  if (!value.is_boolean()) RefuseStep(fmt::format("\"{}\" is {}, no boolean", key, value.dump()));
  return value.get<bool>();
}

std::string Literal(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x80 && !std::isalnum(static_cast<uint8_t>(c))) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

Regex Compile(const std::string& pattern) {
  if (pattern.size() > kLongestPattern)
    RefuseStep(fmt::format("pre_tokenizer: a pattern of {} bytes", pattern.size()));
  try {
    return Regex(pattern);
  } catch (const std::invalid_argument& problem) {
    RefuseStep(fmt::format("pre_tokenizer: its pattern is not understood: {}", problem.what()));
  }
}

SplitStep ReadSplit(const Json& step) {
  const Json pattern = step.value("pattern", Json());
  const bool regex = pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string();
  const bool literal = pattern.is_object() && pattern.contains("String") && pattern["String"].is_string();
  if (!regex && !literal)
    RefuseStep("pre_tokenizer: a Split has neither a \"Regex\" nor a \"String\" as its pattern");
  const std::string text = pattern[regex ? "Regex" : "String"].get<std::string>();
  const std::pair<const char*, SplitBehavior> behaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const Json behavior = step.value("behavior", Json());
  for (const auto& [name, meaning] : behaviors) {
    if (behavior == name)
      return {Compile(regex ? text : Literal(text)), meaning, Flag(step, "invert", false)};
  }
  RefuseStep("pre_tokenizer: unknown behavior " + behavior.dump() + " of a Split");
}

// The expression of GPT-2, which a ByteLevel step applies by itself.
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool ReadNormalizer(const Json& root) {
  const auto steps = Steps(root, "normalizer", "normalizers");
  for (const Json& step : steps) {
    if (const auto type = TypeOf(step, "normalizer"); type != "NFC") {
      RefuseStep("normalizer: \"" + type + "\" is not known, only \"NFC\"");
    }
  }
  return !steps.empty();
}

PreTokenizer ReadPreTokenizer(const Json& root) {
  std::vector<SplitStep> splits;
  bool prefix_space = false, byte_level = false;
  size_t after_prefix = 0;
  for (const Json& step : Steps(root, "pre_tokenizer", "pretokenizers")) {
    const std::string type = TypeOf(step, "pre_tokenizer");
    if (byte_level)
      RefuseStep("pre_tokenizer: \"" + type + "\" comes after \"ByteLevel\", which must be the last step");
    if (type == "Split") {
      splits.push_back(ReadSplit(step));
    } else if (type == "ByteLevel") {
      byte_level = true;
      prefix_space = Flag(step, "add_prefix_space", true);
      after_prefix = Flag(step, "use_regex", true) ? 1 : 0;
      if (after_prefix == 1) splits.push_back({Compile(kGpt2Words)});
    } else {
      RefuseStep("pre_tokenizer: \"" + type + "\" is not known, only \"Split\" and \"ByteLevel\"");
    }
  }
  if (!byte_level) RefuseStep("pre_tokenizer: no \"ByteLevel\" in it: no byte-level tokenizer");
  return PreTokenizer(std::move(splits), prefix_space, after_prefix);
}

void CheckDecoder(const Json& root) {
  const auto steps = Steps(root, "decoder", "decoders");
  if (steps.size() != 1 || TypeOf(steps[0], "decoder") != "ByteLevel")
    RefuseStep("decoder: it is not \"ByteLevel\"");
}

void ReadPostProcessor(const Json& root, int32_t vocabulary_size, std::vector<int32_t>& before,
                       std::vector<int32_t>& after) {
  for (const Json& step : Steps(root, "post_processor", "processors")) {
    const std::string type = TypeOf(step, "post_processor");
    if (type == "ByteLevel") continue;  // moves offsets only
    if (type != "TemplateProcessing") RefuseStep("post_processor: \"" + type + "\" is not known");
    const Json single = step.value("single", Json()), tokens = step.value("special_tokens", Json::object());
    if (!single.is_array() || !tokens.is_object())
      RefuseStep("post_processor: no list \"single\" or no \"special_tokens\"");
    std::vector<int32_t> sides[2];
    int texts = 0;
    for (const Json& piece : single) {
      if (piece.is_object() && piece.contains("Sequence")) {
        ++texts;
        continue;
      }
      try {
        const auto name = piece.at("SpecialToken").at("id").get<std::string>();
        for (const Json& id : tokens.at(name).at("ids")) sides[texts > 0].push_back(id.get<int32_t>());
      } catch (const Json::exception&) {
        RefuseStep("post_processor: " + piece.dump() + " in \"single\" is no token of \"special_tokens\"");
      }
    }
    if (texts != 1) RefuseStep(fmt::format("post_processor: the text comes {} times in \"single\"", texts));
    for (const auto& side : sides) {
      for (const int32_t id : side) {
        if (id < 0 || id >= vocabulary_size)
          RefuseStep(fmt::format("post_processor: there is no token {}", id));
      }
    }
    before.insert(before.begin(), sides[0].begin(), sides[0].end());
    after.insert(after.end(), sides[1].begin(), sides[1].end());
  }
}

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

// Sets the bytes of `id`. A token outside the byte alphabet stands for itself.
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
  // Old files omit the type for BPE.
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
