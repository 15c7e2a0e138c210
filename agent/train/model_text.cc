#include "agent/train/model_text.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "policies/local/files/model_config.h"
#include "policies/local/text/chat_template.h"
#include "policies/local/text/tokenizer.h"
#include "trajectories/blob.h"

namespace kevin {
namespace fs = std::filesystem;
namespace {

using local::ChatTemplate;
using local::Tokenizer;

std::string HashOf(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return ContentHash(text.str());
}

constexpr const char* kThink = "<think>\n";

std::string PromptText(const ChatTemplate& chat, const std::vector<MessageRecord>& messages) {
  ChatTemplate::Json list = ChatTemplate::Json::array();
  for (const MessageRecord& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  return chat.Render(list, true);
}

// The model's text after its prompt, whose template may have opened the reasoning already.
std::string ReplyText(bool prompt_opens, const std::string& reasoning, const std::string& reply) {
  if (reasoning.empty()) return reply;
  return (prompt_opens ? "" : kThink) + reasoning + "\n</think>\n\n" + reply;
}

}  // namespace

ModelText LoadModelText(const std::string& folder) {
  const local::ModelConfig config = local::ReadModelConfig(folder);
  ModelText text;
  text.model = folder;
  text.vocabulary = config.vocabulary;
  if (!fs::exists(fs::path(folder) / "tokenizer.json")) return text;
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::Load(folder);
  text.tokenizer_hash = HashOf(fs::path(folder) / "tokenizer.json");
  text.decode = [tokenizer](std::span<const int32_t> ids, bool skip_special) {
    return tokenizer->Decode(ids, skip_special);
  };
  const auto chat = std::make_shared<const ChatTemplate>(ChatTemplate::Load(folder));
  text.encode_prompt = [tokenizer, chat](const std::vector<MessageRecord>& messages) {
    return tokenizer->Encode(PromptText(*chat, messages));
  };
  const bool opens = PromptText(*chat, {{"user", "?"}}).ends_with(kThink);
  const std::vector<int32_t> ends = config.generation.end_tokens;
  text.encode_reply = [tokenizer, opens, ends](const std::string& reasoning, const std::string& reply) {
    std::vector<int32_t> ids = tokenizer->Encode(ReplyText(opens, reasoning, reply));
    if (!ends.empty()) ids.push_back(ends[0]);
    return ids;
  };
  return text;
}

std::string VersionedModel(const std::string& name, int64_t steps) {
  return name + "@" + std::to_string(steps);
}

std::optional<int64_t> VersionOfModel(const std::string& stored) {
  const size_t at = stored.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  int64_t steps = 0;
  const char* const end = stored.data() + stored.size();
  const auto [next, error] = std::from_chars(stored.data() + at + 1, end, steps);
  if (error != std::errc() || next != end || steps < 0) return std::nullopt;
  return steps;
}

}  // namespace kevin
