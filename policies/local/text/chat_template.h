#pragma once
// Formats messages as the text a model was trained on: renders the chat template of its folder as
// apply_chat_template of transformers does. The template is an untrusted Jinja program: it reaches no files
// and is limited in time and memory (jinja/template.h).
//
//   ChatTemplate chat = ChatTemplate::Load(folder);
//   chat.Render({{{"role", "user"}, {"content", "Hello"}}}, true, {{"enable_thinking", false}});
//
// Immutable; any thread.

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace kevin::local {

class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;  // keeps the order of fields, which templates print

  // Reads the first of these that exists: chat_template.jinja (beside it
  // additional_chat_templates/NAME.jinja), `chat_template` in tokenizer_config.json (one or several with
  // names), chat_template.json. Special tokens (`bos_token`, ...) come from tokenizer_config.json, else
  // special_tokens_map.json. Throws Error(kBadRequest) with file, line and reason.
  static ChatTemplate Load(const std::filesystem::path& model_folder);

  // `messages`: a list of {"role", "content", ...}. `extra`: an object of further variables of the template
  // (`tools`, `enable_thinking`, `date_string`, ...); they override special tokens of the same name. Of
  // several templates `tool_use` is used when there are tools, else `default`. Throws Error(kBadRequest) with
  // file, line and reason, also when the template itself rejects the messages.
  std::string Render(const Json& messages, bool add_generation_prompt,
                     const Json& extra = Json::object()) const;

  const std::string& Source() const;  // of the template used without tools

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace kevin::local
