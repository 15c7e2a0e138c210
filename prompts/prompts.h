#pragma once
// What is said to a policy: one Markdown file per prompt in this folder, built into the program. `agent`
// fills the placeholders; the hash of the whole set is stored with every episode, so that two records compare
// only when they were asked the same way.
//
// A file knows two forms, with the meaning they have in Mustache (nothing is HTML-escaped):
//   {{name}}                   the value
//   {{#name}} … {{/name}}      the text between, left out when the value is empty
// A section's tag that stands alone on a line takes the line with it. Values are inserted as they are: braces
// in them mean nothing. All functions are safe to call from many threads.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kevin {

using PromptValues = std::map<std::string, std::string>;

// Fills the prompt `name` ("first_turn" is first_turn.md). Throws Error(kBroken) for an unknown prompt, for a
// placeholder without a value and for a value without a placeholder: all three are mistakes in the program.
std::string Render(std::string_view name, const PromptValues& values);

// The same on any text; `name` only appears in errors.
std::string RenderText(std::string_view name, std::string_view text, const PromptValues& values);

std::vector<std::string> PromptNames();              // sorted
std::string_view PromptText(std::string_view name);  // as in the file

// SHA-256 over all prompts, 64 lower-case hex digits; changes when any prompt does.
std::string_view PromptSetHash();

}  // namespace kevin
