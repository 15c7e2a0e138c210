#pragma once
// A model of 64 tokens for tests of the server: letters, a few words, tags, and an end.

#include <memory>
#include <string>
#include <vector>

#include "env/error.h"
#include "policies/local/serve/served_model.h"
#include "tests/support/fake_runner.h"

namespace kevin::local::test {

constexpr int kLetters = 64, kOpen = 59, kClose = 60, kAccent = 61, kStart = 62, kEnd = 63;

inline std::string LetterOf(int32_t id) {
  static const std::string kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ \n.:,?|";
  if (id == kOpen) return "<think>";
  if (id == kClose) return "</think>";
  if (id == kAccent) return "\xc3\xa9";
  if (id == kStart || id == kEnd) return "";
  return std::string(1, kPlain.at(static_cast<size_t>(id)));
}

class Letters : public ModelText {
 public:
  std::vector<int32_t> Encode(const std::string& text, bool whole) const override {
    std::vector<int32_t> ids;
    if (whole) ids.push_back(kStart);
    for (size_t at = 0; at < text.size();) {
      int32_t id = 0;
      for (int32_t candidate = kAccent; candidate >= 0; --candidate) {
        if (text.compare(at, LetterOf(candidate).size(), LetterOf(candidate)) == 0) {
          id = candidate;
          break;
        }
      }
      ids.push_back(id);
      at += LetterOf(id).size();
    }
    return ids;
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += LetterOf(id);
    return text;
  }
  std::string Bytes(int32_t id) const override { return LetterOf(id); }
  std::unique_ptr<TokenText> NewText() const override {
    struct Text : TokenText {
      std::string Add(int32_t id) override { return LetterOf(id); }
      std::string Finish() override { return ""; }
    };
    return std::make_unique<Text>();
  }
  // "user:Hello\n...assistant:"; with the variable `think` it opens a thought.
  std::string RenderChat(const remote::Json& messages, bool add_generation_prompt,
                         const remote::Json& variables) const override {
    std::string text;
    for (const remote::Json& message : messages) {
      const std::string role = remote::TextAt(message, "role");
      if (role == "nobody") throw Error(ExitCode::kBadRequest, "the template knows no role \"nobody\"");
      text += role + ":" + remote::TextAt(message, "content") + "\n";
    }
    if (add_generation_prompt) text += "assistant:";
    if (variables.contains("think")) text += "<think>\n";
    return text;
  }
};

inline FakeRunner::Options LettersRunner() {
  FakeRunner::Options options;
  options.shape = {kLetters, 600, 8, 800, 64, 256, 2};
  return options;
}

inline ServedModel LettersModel() {
  ServedModel model;
  model.name = "letters";
  model.root = "/models/letters";
  model.text = std::make_shared<Letters>();
  model.stop_tokens = {kEnd};
  return model;
}

}  // namespace kevin::local::test
