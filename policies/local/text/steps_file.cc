#include "policies/local/text/steps_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

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

// The steps in a row, none of them a Sequence.
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
    // A Sequence in a Sequence is never written, and endless ones are thereby impossible.
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

// GPT-2's words, which a ByteLevel step cuts by itself.
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

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

}  // namespace kevin::local
