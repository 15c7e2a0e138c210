// Templates against Jinja itself, set up as transformers sets it up (goldens/make_templates.py).
#include "policies/local/text/chat_template.h"

#include <ctime>

#include "policies/local/text/jinja/template.h"
#include "tests/policies/local/text/text_fixture.h"

namespace kevin::local {
namespace {

using Json = nlohmann::ordered_json;

std::tm GoldenNow() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 13;
  now.tm_min = 5;
  now.tm_sec = 9;
  timegm(&now);  // the day of the week and of the year
  return now;
}

void CheckLikeGolden(const std::string& source, const Json& variables, const Json& golden) {
  INFO(source);
  try {
    const std::string text = jinja::Template(source).Render(variables, GoldenNow);
    INFO(text);
    REQUIRE(golden.contains("text"));
    CHECK(text == golden["text"].get<std::string>());
  } catch (const jinja::TemplateError& error) {
    INFO(error.what());
    CHECK(golden.contains("refused"));
    CHECK(error.line() > 0);
  }
}

TEST_CASE("expressions and statements mean what they mean in Jinja") {
  const Json golden = ReadGolden<Json>("renderings.json");
  REQUIRE(golden.at("snippets").size() > 200);
  for (const Json& snippet : golden.at("snippets")) {
    CheckLikeGolden(snippet.at("source").get<std::string>(), golden.at("variables"), snippet);
  }
}

TEST_CASE("chats are rendered as by transformers") {
  const Json golden = ReadGolden<Json>("renderings.json");
  REQUIRE(golden.at("chats").size() > 500);
  for (const Json& chat : golden.at("chats")) {
    const auto name = chat.at("template").get<std::string>();
    INFO(name << ", " << chat.at("conversation") << ", " << chat.at("extra"));
    Json variables = {{"bos_token", "<s>"},
                      {"eos_token", "</s>"},
                      {"messages", golden.at("conversations").at(chat.at("conversation").get<std::string>())},
                      {"tools", nullptr},
                      {"documents", nullptr},
                      {"add_generation_prompt", chat.at("prompt")}};
    variables.update(golden.at("extras").at(chat.at("extra").get<size_t>()));
    CheckLikeGolden(ReadText(Goldens() / "templates" / name), variables, chat);
  }
}

TEST_CASE("a folder's template, wherever it is written") {
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const std::string source =
      "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}";
  const std::string tokens =
      R"("bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "<e>", "pad_token": null)";
  ModelFolder folder;
  folder.Write("chat_template.json", Json({{"chat_template", "json " + source}}).dump());
  CHECK(ChatTemplate::Load(folder.path()).Render(messages, true) == "json Hi");
  folder.Write("special_tokens_map.json", R"({"bos_token": "<map>", "eos_token": "<map>"})");
  folder.Write("tokenizer_config.json", "{" + tokens + "}");
  CHECK(ChatTemplate::Load(folder.path()).Render(messages, true) == "json <b>Hi<e>");
  folder.Write("tokenizer_config.json",
               "{" + tokens + ", \"chat_template\": " + Json("config " + source).dump() + "}");
  CHECK(ChatTemplate::Load(folder.path()).Render(messages, true) == "config <b>Hi<e>");
  folder.Write("chat_template.jinja", "jinja " + source);
  const auto chat = ChatTemplate::Load(folder.path());
  CHECK(chat.Source() == "jinja " + source);
  CHECK(chat.Render(messages, true) == "jinja <b>Hi<e>");
  CHECK(chat.Render(messages, true, {{"bos_token", "<mine>"}}) == "jinja <mine>Hi<e>");
}

TEST_CASE("several templates with names") {
  ModelFolder folder;
  const Json list = {{{"name", "default"}, {"template", "plain {{ tools }}"}},
                     {{"name", "tool_use"}, {"template", "tools {{ tools | length }}"}}};
  folder.Write("tokenizer_config.json", Json({{"chat_template", list}}).dump());
  const auto chat = ChatTemplate::Load(folder.path());
  CHECK(chat.Render(Json::array(), false) == "plain None");
  CHECK(chat.Render(Json::array(), false, {{"tools", {1, 2}}}) == "tools 2");
  folder.Write("chat_template.jinja", "from the file");
  folder.Write("additional_chat_templates/tool_use.jinja", "more");
  const auto files = ChatTemplate::Load(folder.path());
  CHECK(files.Render(Json::array(), false) == "from the file");
  CHECK(files.Render(Json::array(), false, {{"tools", {1}}}) == "more");
}

TEST_CASE("what a template sees besides the messages") {
  ModelFolder folder;
  folder.Write(
      "chat_template.jinja",
      "{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ extra is defined }} {{ bos_token }}|"
      "{{ strftime_now('%Y') | int > 2000 }}");
  const auto chat = ChatTemplate::Load(folder.path());
  CHECK(chat.Render(Json::array(), true) == "None None True False |True");
  CHECK(chat.Render(Json::array(), false, {{"extra", 1}, {"documents", "d"}}) == "None d False True |True");
  CHECK(chat.Render(nlohmann::json::array(), true) == "None None True False |True");
}

TEST_CASE("complaints name file, line and reason") {
  ModelFolder folder;
  const auto load = [&] { ChatTemplate::Load(folder.path()); };
  CHECK(Complaint(load).ends_with(": no chat template in it"));
  folder.Write("tokenizer_config.json", "{\"chat_template\": 5}");
  CHECK(Complaint(load).ends_with("chat_template is neither a text nor a list of {\"name\", \"template\"}"));
  folder.Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  CHECK(Complaint(load).ends_with("several chat templates, and none of them is \"default\""));
  folder.Write("tokenizer_config.json", "[]");
  CHECK(Complaint(load).ends_with("tokenizer_config.json: it is no JSON object"));
  folder.Write("tokenizer_config.json", "{}");
  folder.Write("chat_template.jinja", "a\n\n{% if x %}\n");
  CHECK(Complaint(load) ==
        (folder.path() / "chat_template.jinja: chat template, line 3: {% endif %} is missing").string());
  folder.Write("chat_template.jinja", "a\n{{ messages[0].content\n.nothing.more }}");
  const auto chat = ChatTemplate::Load(folder.path());
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  CHECK(Complaint([&] {
          chat.Render(messages, true);
        }).ends_with("chat template, line 3: 'str object' has no attribute 'nothing'"));
  CHECK(Complaint([&] { chat.Render("no list", true); }) == "the messages of a chat are no list");
  folder.Write("chat_template.jinja", "\n{{ raise_exception('roles must alternate') }}");
  CHECK(Complaint([&] {
          ChatTemplate::Load(folder.path()).Render(messages, true);
        }).ends_with("line 2: the template refuses: roles must alternate"));
}

}  // namespace
}  // namespace kevin::local
