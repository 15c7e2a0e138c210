#include "agent/train/model_text.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "env/error.h"
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

// The end token that the template writes after an answer; else the first.
std::vector<int32_t> EndOfAnswer(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const std::vector<int32_t>& ends) {
  const std::string content = "the-answer";
  std::string text;
  try {
    text = chat.Render({{{"role", "user"}, {"content", "?"}}, {{"role", "assistant"}, {"content", content}}},
                       false);
  } catch (const Error&) {  // a template for prompts only
  }
  const size_t at = text.rfind(content);
  const std::string rest = at == std::string::npos ? "" : text.substr(at + content.size());
  for (const int32_t end : ends) {
    const std::string spelt = tokenizer.Decode(std::vector<int32_t>{end}, false);
    if (!spelt.empty() && rest.starts_with(spelt)) return {end};
  }
  return ends.empty() ? ends : std::vector<int32_t>{ends[0]};
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
  const std::vector<int32_t> end = EndOfAnswer(*tokenizer, *chat, config.generation.end_tokens);
  text.encode_reply = [tokenizer, opens, end](const std::string& reasoning, const std::string& reply) {
    std::vector<int32_t> ids = tokenizer->Encode(ReplyText(opens, reasoning, reply));
    ids.insert(ids.end(), end.begin(), end.end());
    return ids;
  };
  return text;
}

std::string PolicyNameOfRun(const std::string& output) {
  return "online:" + fs::absolute(output).lexically_normal().string();
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
