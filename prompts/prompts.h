#pragma once
// The texts that a language model receives: one Markdown file a prompt in this folder, built into the
// program. `agent` fills the placeholders. README.md says which prompt is sent when and how to change one.
//
// A prompt has two forms of placeholder, with their meaning in Mustache (without HTML escaping):
//   {{name}}                   the value
//   {{#name}} ... {{/name}}    the text between the tags; left out when the value is empty
// A section tag alone on its line is removed with the line. Values are inserted literally: braces in a value
// have no meaning.
//
// Two records are comparable only if the model was asked in the same way. Every episode and turn therefore
// stores PromptSetHash, which identifies all texts exactly. kPromptVersion is its name for people.
//
// All functions are pure and may be called from any thread.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kevin {

// Goes up by one with each deliberate change of the prompts. tests/prompts holds the hash that belongs to it.
inline constexpr int kPromptVersion = 11;

using PromptValues = std::map<std::string, std::string>;

// Fills the prompt `name` ("first_turn" is first_turn.md). Throws Error(kBroken) for an unknown prompt, for a
// placeholder without a value and for a value without a placeholder: all three are errors of the program.
std::string Render(std::string_view name, const PromptValues& values);

// The same for any text; `name` appears only in errors.
std::string RenderText(std::string_view name, std::string_view text, const PromptValues& values);

std::vector<std::string> PromptNames();              // sorted
std::string_view PromptText(std::string_view name);  // as in the file; Error(kBroken) for an unknown prompt

// SHA-256 over the names and texts of all prompts, 64 lower-case hex digits.
std::string_view PromptSetHash();

// The prompts as the build embeds them (embed.cmake writes the definitions). For prompts.cc only.
struct EmbeddedPrompt {
  std::string_view name;
  std::string_view text;
};
const std::vector<EmbeddedPrompt>& EmbeddedPrompts();  // sorted by name
const char* EmbeddedPromptSetHash();

}  // namespace kevin
