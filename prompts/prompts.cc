#include "prompts/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "env/error.h"

namespace kevin {
namespace {

[[noreturn]] void Fail(std::string_view name, const std::string& reason) {
  throw Error(ExitCode::kBroken, fmt::format("prompt {}: {}", name, reason));
}

class Renderer {
 public:
  Renderer(std::string_view name, std::string_view text, const PromptValues& values)
      : name_(name), text_(text), values_(values) {}

  std::string Run() {
    Emit("", true);
    for (const auto& [key, value] : values_) {
      if (!used_.count(key)) Fail(name_, fmt::format("no placeholder {{{{{}}}}}", key));
    }
    return std::move(out_);
  }

 private:
  // Copies text up to {{/section}} (the end of the text for an empty name); writes it only when `visible`.
  void Emit(std::string_view section, bool visible) {
    while (true) {
      const size_t open = text_.find("{{", position_);
      if (open == std::string_view::npos) {
        if (!section.empty()) Fail(name_, fmt::format("section {} is not closed", section));
        Write(text_.substr(position_), visible);
        position_ = text_.size();
        return;
      }
      const size_t close = text_.find("}}", open);
      if (close == std::string_view::npos) Fail(name_, "\"{{\" without \"}}\"");
      const std::string_view tag = text_.substr(open + 2, close - open - 2);
      if (tag.empty()) Fail(name_, "empty placeholder");
      const bool is_section = tag[0] == '#' || tag[0] == '/';
      Write(text_.substr(position_, open - position_), visible);
      position_ = close + 2;
      if (is_section) SkipRestOfLineAfter(open);
      if (tag[0] == '/') {
        if (tag.substr(1) != section) Fail(name_, fmt::format("{{{{{}}}}} closes nothing", tag));
        return;
      }
      if (tag[0] == '#') {
        const bool has_value = !Value(tag.substr(1)).empty();
        Emit(tag.substr(1), visible && has_value);
      } else {
        Write(Value(tag), visible);
      }
    }
  }

  // A section's tag alone on its line leaves no empty line behind.
  void SkipRestOfLineAfter(size_t open) {
    const bool starts_line = open == 0 || text_[open - 1] == '\n';
    const bool ends_line = position_ < text_.size() && text_[position_] == '\n';
    if (starts_line && ends_line) ++position_;
  }

  const std::string& Value(std::string_view key) {
    const auto found = values_.find(std::string(key));
    if (found == values_.end()) Fail(name_, fmt::format("no value for {{{{{}}}}}", key));
    used_.insert(found->first);
    return found->second;
  }

  void Write(std::string_view piece, bool visible) {
    if (visible) out_ += piece;
  }

  std::string_view name_;
  std::string_view text_;
  const PromptValues& values_;
  size_t position_ = 0;
  std::set<std::string> used_;
  std::string out_;
};

}  // namespace

std::string RenderText(std::string_view name, std::string_view text, const PromptValues& values) {
  return Renderer(name, text, values).Run();
}

std::string Render(std::string_view name, const PromptValues& values) {
  return RenderText(name, PromptText(name), values);
}

std::vector<std::string> PromptNames() {
  std::vector<std::string> names;
  for (const EmbeddedPrompt& prompt : EmbeddedPrompts()) names.emplace_back(prompt.name);
  return names;
}

std::string_view PromptText(std::string_view name) {
  const auto& all = EmbeddedPrompts();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.name == name; });
  if (found == all.end()) Fail(name, "no such prompt");
  return found->text;
}

std::string_view PromptSetHash() { return EmbeddedPromptSetHash(); }

}  // namespace kevin
