#include "policies/local/serve/served_model.h"

#include <optional>
#include <utility>

#include "policies/local/files/model_config.h"
#include "policies/local/files/weights_hash.h"
#include "policies/local/text/chat_template.h"
#include "policies/local/text/tokenizer.h"

namespace kevin::local {

namespace {

class StreamText : public TokenText {
 public:
  explicit StreamText(std::shared_ptr<const Tokenizer> tokenizer) : decoder_(std::move(tokenizer), true) {}
  std::string Add(int32_t id) override { return decoder_.Add(id); }
  std::string Finish() override { return decoder_.Finish(); }

 private:
  StreamDecoder decoder_;
};

class FolderText : public ModelText {
 public:
  explicit FolderText(const std::filesystem::path& folder) : tokenizer_(Tokenizer::Load(folder)) {
    try {
      chat_.emplace(ChatTemplate::Load(folder));
    } catch (const Error& error) {
      why_no_chat_ = error.what();
    }
  }
  std::vector<int32_t> Encode(const std::string& text, bool whole) const override {
    std::vector<int32_t> ids = tokenizer_->Encode(text);
    return whole ? tokenizer_->WithTemplate(std::move(ids)) : ids;
  }
  std::string Decode(std::span<const int32_t> ids) const override { return tokenizer_->Decode(ids); }
  std::string Bytes(int32_t id) const override { return std::string(tokenizer_->Bytes(id)); }
  std::unique_ptr<TokenText> NewText() const override { return std::make_unique<StreamText>(tokenizer_); }
  std::string RenderChat(const remote::Json& messages, bool add_generation_prompt,
                         const remote::Json& variables) const override {
    if (!chat_) throw Error(ExitCode::kBadRequest, why_no_chat_, "use /v1/completions");
    return chat_->Render(messages, add_generation_prompt, variables);
  }
  std::string ChatHash() const {
    return chat_ ? Sha256OfBytes(std::as_bytes(std::span(chat_->Source()))) : "";
  }

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::string why_no_chat_;
};

}  // namespace

ServedModel ReadFolderModel(const std::filesystem::path& model_folder) {
  const GenerationDefaults defaults = ReadModelConfig(model_folder).generation;
  ServedModel model;
  const auto text = std::make_shared<FolderText>(model_folder);
  model.text = text;
  model.tokenizer_hash = Sha256OfFile(model_folder / "tokenizer.json");
  model.chat_template_hash = text->ChatHash();
  model.sampling.temperature = defaults.temperature.value_or(1);
  model.sampling.top_p = defaults.top_p.value_or(1);
  model.sampling.min_p = defaults.min_p.value_or(0);
  model.sampling.top_k = defaults.top_k.value_or(0);
  model.stop_tokens = defaults.end_tokens;
  return model;
}

}  // namespace kevin::local
