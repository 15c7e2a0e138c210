#pragma once
// Messages to the text that a model was trained on: its folder's chat template, rendered as transformers'
// apply_chat_template renders it. The template is a program in Jinja from a folder that need not be trusted:
// it can neither touch files nor run without end (jinja/template.h).
//
//   ChatTemplate chat = ChatTemplate::Load(folder);
//   chat.Render({{{"role", "user"}, {"content", "Hello"}}}, true, {{"enable_thinking", false}});
//
// A template never changes once loaded: any number of threads may use one.

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace kevin::local {

class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;  // keeps the order of fields, which templates print

  // The first there is of: chat_template.jinja (beside it additional_chat_templates/NAME.jinja),
  // `chat_template` in tokenizer_config.json (one or several with names), chat_template.json. Special tokens
  // (`bos_token`, ...) come from tokenizer_config.json, else special_tokens_map.json. Throws
  // Error(kBadRequest) with file, line and reason.
  static ChatTemplate Load(const std::filesystem::path& model_folder);

  // `messages`: a list of {"role", "content", ...}. `extra`: an object of further variables that the template
  // sees (`tools`, `enable_thinking`, `date_string`, ...); one wins over a special token of the same name. Of
  // several templates `tool_use` is taken when there are tools, else `default`. Throws Error(kBadRequest)
  // with file, line and reason, also when the template itself refuses the messages.
  std::string Render(const Json& messages, bool add_generation_prompt,
                     const Json& extra = Json::object()) const;

  const std::string& Source() const;  // of the template taken without tools

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace kevin::local
