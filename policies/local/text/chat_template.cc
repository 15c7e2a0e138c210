#include "policies/local/text/chat_template.h"

#include <fmt/format.h>

#include <ctime>
#include <map>

#include "env/error.h"
#include "policies/local/files/model_config.h"
#include "policies/local/text/jinja/template.h"

namespace kevin::local {
namespace {

constexpr size_t kMostTemplateBytes = 16 << 20;

struct NamedTemplate {
  std::string where;  // for messages: the file, and the name where there are several
  std::string source;
  jinja::Template parsed;
};
using NamedTemplates = std::map<std::string, NamedTemplate>;

[[noreturn]] void RefuseTemplate(const std::string& where, const jinja::TemplateError& error) {
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: chat template, line {}: {}", where, error.line(), error.what()));
}

void Add(NamedTemplates& templates, const std::string& name, const std::string& where, std::string source) {
  try {
    jinja::Template parsed(source);
    templates.insert_or_assign(name, NamedTemplate{where, std::move(source), std::move(parsed)});
  } catch (const jinja::TemplateError& error) {
    RefuseTemplate(where, error);
  }
}

// From the value of "chat_template": a text, or a list of {"name", "template"}.
void AddFromJson(NamedTemplates& templates, const std::string& file, const nlohmann::json& value) {
  if (value.is_string()) return Add(templates, "default", file, value.get<std::string>());
  if (value.is_null()) return;
  const auto text = [](const nlohmann::json& entry, const char* key) {
    const auto found = entry.is_object() ? entry.find(key) : entry.end();
    return found != entry.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
  };
  for (const auto& entry : value.is_array() ? value : nlohmann::json::array({nullptr})) {
    const std::string *name = text(entry, "name"), *source = text(entry, "template");
    if (name == nullptr || source == nullptr) {
      throw Error(ExitCode::kBadRequest,
                  file + ": chat_template is neither a text nor a list of {\"name\", \"template\"}");
    }
    Add(templates, *name, fmt::format("{} ({})", file, *name), *source);
  }
}

NamedTemplates ReadTemplates(const std::filesystem::path& folder, const nlohmann::json& config) {
  NamedTemplates templates;
  const auto file = folder / "chat_template.jinja", more = folder / "additional_chat_templates";
  const auto config_file = (folder / "tokenizer_config.json").string(),
             json_file = (folder / "chat_template.json").string();
  std::error_code error;
  if (std::filesystem::exists(file, error)) {
    Add(templates, "default", file.string(), ReadModelFile(file, kMostTemplateBytes));
  }
  for (const auto& entry : std::filesystem::directory_iterator(more, error)) {
    if (entry.path().extension() != ".jinja") continue;
    Add(templates, entry.path().stem().string(), entry.path().string(),
        ReadModelFile(entry.path(), kMostTemplateBytes));
  }
  if (templates.empty()) AddFromJson(templates, config_file, config.value("chat_template", nlohmann::json()));
  if (templates.empty() && std::filesystem::exists(json_file, error)) {
    const auto json = ReadModelJson(json_file, kMostTemplateBytes);
    if (json.is_object()) AddFromJson(templates, json_file, json.value("chat_template", nlohmann::json()));
  }
  if (templates.empty()) {
    throw Error(
        ExitCode::kBadRequest, folder.string() + ": no chat template in it",
        "A model for chats has chat_template.jinja, or chat_template in tokenizer_config.json; a base "
        "model has none.");
  }
  if (!templates.contains("default")) {
    throw Error(ExitCode::kBadRequest,
                folder.string() + ": several chat templates, and none of them is \"default\"");
  }
  return templates;
}

// A token is written as a text or as {"content": text, ...}.
void AddSpecialTokens(const nlohmann::json& config, nlohmann::ordered_json& variables) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    nlohmann::json token = config.value(name, nlohmann::json());
    if (token.is_object()) token = token.value("content", nlohmann::json());
    if (token.is_string() && !variables.contains(name)) variables[name] = token.get<std::string>();
  }
}

nlohmann::json ReadObject(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return nlohmann::json::object();
  nlohmann::json json = ReadModelJson(file, kMostTemplateBytes);
  if (!json.is_object()) throw Error(ExitCode::kBadRequest, file.string() + ": it is no JSON object");
  return json;
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm broken_down{};
  localtime_r(&now, &broken_down);
  return broken_down;
}

}  // namespace

struct ChatTemplate::Parts {
  NamedTemplates templates;
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();

  const NamedTemplate& Pick(bool tools) const {
    return templates.at(tools && templates.contains("tool_use") ? "tool_use" : "default");
  }
};

ChatTemplate ChatTemplate::Load(const std::filesystem::path& model_folder) {
  const auto config = ReadObject(model_folder / "tokenizer_config.json");
  auto parts = std::make_shared<Parts>();
  parts->templates = ReadTemplates(model_folder, config);
  AddSpecialTokens(config, parts->special_tokens);
  AddSpecialTokens(ReadObject(model_folder / "special_tokens_map.json"), parts->special_tokens);
  return ChatTemplate(std::move(parts));
}

std::string ChatTemplate::Render(const Json& messages, bool add_generation_prompt, const Json& extra) const {
  if (!messages.is_array()) throw Error(ExitCode::kBadRequest, "the messages of a chat are no list");
  Json variables = parts_->special_tokens;
  variables["messages"] = messages;
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  for (const auto& [name, value] : extra.items()) variables[name] = value;
  const Json& tools = variables["tools"];
  const NamedTemplate& chosen = parts_->Pick(!tools.is_null());
  try {
    return chosen.parsed.Render(variables, LocalTime);
  } catch (const jinja::TemplateError& error) {
    RefuseTemplate(chosen.where, error);
  }
}

const std::string& ChatTemplate::Source() const { return parts_->Pick(false).source; }

}  // namespace kevin::local
