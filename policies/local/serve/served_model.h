#pragma once
// Which weights a server's answers come from, for those who record answers. Any thread.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/generate/engine.h"
#include "policies/remote/json.h"

namespace kevin::local {

class ServedWeights {
 public:
  struct State {
    int64_t version = 0;  // of a model in training: the steps it has learnt
    // Of their contents (files/weights_hash.h), perhaps not known yet; "" where it cannot be.
    std::shared_future<std::string> hash;
  };

  // Answers that begin from now on come from these.
  void Set(State state) {
    const std::lock_guard lock(mutex_);
    state_ = std::move(state);
  }
  State Get() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  mutable std::mutex mutex_;
  State state_;
};

// What a server serves: an engine, and what makes tokens of requests and text of tokens.

// Any thread.
class ModelText {
 public:
  virtual ~ModelText() = default;
  // `whole`: with what the model expects around a text by itself, such as a beginning-of-text token.
  virtual std::vector<int32_t> Encode(const std::string& text, bool whole) const = 0;
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // As a piece of a text; not always valid UTF-8.
  virtual std::string Bytes(int32_t id) const = 0;
  virtual std::unique_ptr<TokenText> NewText() const = 0;
  // By the chat template. Throws Error(kBadRequest) for what it refuses, and where there is none.
  virtual std::string RenderChat(const remote::Json& messages, bool add_generation_prompt,
                                 const remote::Json& variables) const = 0;
};

struct ServedModel {
  std::string name;  // as clients ask for it
  std::string root;  // where it came from, for /v1/models
  std::shared_ptr<const ModelText> text;
  std::shared_ptr<const ServedWeights> weights;    // null: unknown
  std::string tokenizer_hash, chat_template_hash;  // SHA-256 of tokenizer.json and of the template; or empty
  // What a request that does not say gets.
  TokenSampling sampling;
  std::vector<int32_t> stop_tokens;
  // Requests without a seed get one after the other from here.
  uint64_t seed = 0;
};

// What a model's folder says beside its weights: tokenizer, chat template, how it is meant to be sampled.

// A folder without a chat template serves completions only. Throws Error(kBadRequest) that names the file.
ServedModel ReadFolderModel(const std::filesystem::path& model_folder);

}  // namespace kevin::local
