#include "prompts/prompts.h"

#include <fstream>
#include <sstream>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin {
namespace {

std::string Text(const std::string& text, const PromptValues& values) {
  return RenderText("test", text, values);
}

std::string ErrorOf(const std::string& text, const PromptValues& values) {
  try {
    Text(text, values);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("placeholders are replaced once, values are not read again") {
  CHECK(Text("a {{x}} b {{x}}", {{"x", "1"}}) == "a 1 b 1");
  CHECK(Text("{{x}}", {{"x", "{{y}} {{#z}}"}}) == "{{y}} {{#z}}");
  CHECK(Text("no placeholder { } }}", {}) == "no placeholder { } }}");
  CHECK(Text("", {}) == "");
}

TEST_CASE("a section disappears with its lines when its value is empty") {
  const std::string text = "one\n{{#note}}\nnote: {{note}}\n{{/note}}\ntwo\n";
  CHECK(Text(text, {{"note", "hi"}}) == "one\nnote: hi\ntwo\n");
  CHECK(Text(text, {{"note", ""}}) == "one\ntwo\n");
  CHECK(Text("a{{#n}} ({{n}}){{/n}}.", {{"n", "3"}}) == "a (3).");
  CHECK(Text("a{{#n}} ({{n}}){{/n}}.", {{"n", ""}}) == "a.");
  CHECK(Text("{{#a}}[{{#b}}{{b}}{{/b}}]{{/a}}", {{"a", "1"}, {"b", "2"}}) == "[2]");
  CHECK(Text("{{#a}}[{{#b}}{{b}}{{/b}}]{{/a}}", {{"a", ""}, {"b", "2"}}) == "");
  CHECK(Text("{{#a}}[{{#b}}b{{/b}}]{{/a}}", {{"a", ""}, {"b", "2"}}) == "");
}

TEST_CASE("mistakes in a prompt or its values are errors that name the place") {
  CHECK(ErrorOf("{{x}}", {}) == "prompt test: no value for {{x}}");
  CHECK(ErrorOf("", {{"x", "1"}}) == "prompt test: no placeholder {{x}}");
  CHECK(ErrorOf("{{x", {{"x", "1"}}) == "prompt test: \"{{\" without \"}}\"");
  CHECK(ErrorOf("{{#x}} text", {{"x", "1"}}) == "prompt test: section x is not closed");
  CHECK(ErrorOf("{{#x}} {{/y}}", {{"x", "1"}}) == "prompt test: {{/y}} closes nothing");
  CHECK(ErrorOf("{{/y}}", {}) == "prompt test: {{/y}} closes nothing");
  CHECK(ErrorOf("{{}}", {}) == "prompt test: empty placeholder");
  CHECK_THROWS_AS(Render("nothing_of_that_name", {}), Error);
}

TEST_CASE("the embedded prompts equal the files") {
  const std::vector<std::string> names = PromptNames();
  REQUIRE(names.size() >= 6);
  for (const std::string& name : names) {
    std::ifstream file(std::string(SourceFolder() / "prompts/") + name + ".md");
    std::ostringstream text;
    text << file.rdbuf();
    CHECK(PromptText(name) == text.str());
  }
  CHECK(PromptSetHash().size() == 64);
}

// A changed prompt makes new records incomparable with old ones, so it is changed deliberately: raise
// kPromptVersion, read the diff of the golden files, and put the new hash here.
TEST_CASE("the version of the prompts goes up when their text changes") {
  CHECK(kPromptVersion == 11);
  CHECK(PromptSetHash() == "2357c706ec95cdf860ff886cf1b33c5a792ec4b0fa965817080caebdfdd85850");
}

TEST_CASE("an attempt without a summary has no line for it") {
  const std::string with = Render("attempt", {{"title", "Turn 1"},
                                              {"fence", "cpp"},
                                              {"source", "int x;"},
                                              {"summary", "Tiled."},
                                              {"feedback", "Slow."}});
  const std::string without = Render(
      "attempt",
      {{"title", "Turn 1"}, {"fence", "cpp"}, {"source", "int x;"}, {"summary", ""}, {"feedback", "Slow."}});
  CHECK(with == "### Turn 1\n\n```cpp\nint x;\n```\n\nYour summary: Tiled.\n\nSlow.\n");
  CHECK(without == "### Turn 1\n\n```cpp\nint x;\n```\n\nSlow.\n");
}

}  // namespace kevin
