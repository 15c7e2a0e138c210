#pragma once
// The prompts as the build put them in the program (embed.cmake writes the source). Private to prompts.cc.

#include <string_view>
#include <vector>

namespace kevin {

struct EmbeddedPrompt {
  std::string_view name;
  std::string_view text;
};

const std::vector<EmbeddedPrompt>& EmbeddedPrompts();  // sorted by name
const char* EmbeddedPromptSetHash();

}  // namespace kevin
