#pragma once
// The model behind a server: its name, tokenizer and template, default sampling, and the identity of its
// weights.

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

// The identity of the weights that answers come from, for records. Any thread.
class ServedWeights {
 public:
  struct State {
    int64_t version = 0;  // of a model in training: the steps it has learnt
    // Identifies the weights. Of a folder: the hash of their contents (files/weights_hash.h), which may not
    // be computed yet. Of a model in training: RUN@STEPS (train/serve_training.h). "": unknown.
    std::shared_future<std::string> identity;
  };

  // For answers that begin from now on.
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

// Requests to tokens, and tokens to text. Any thread.
class ModelText {
 public:
  virtual ~ModelText() = default;
  // `whole`: with the tokens around a text, such as beginning-of-text.
  virtual std::vector<int32_t> Encode(const std::string& text, bool whole) const = 0;
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
  // The bytes of a token; not always valid UTF-8.
  virtual std::string Bytes(int32_t id) const = 0;
  virtual std::unique_ptr<TokenText> NewText() const = 0;
  // By the chat template. Throws Error(kBadRequest) when the template rejects the messages or there is none.
  virtual std::string RenderChat(const remote::Json& messages, bool add_generation_prompt,
                                 const remote::Json& variables) const = 0;
};

struct ServedModel {
  std::string name;  // for clients
  std::string root;  // its folder, for /v1/models
  std::shared_ptr<const ModelText> text;
  std::shared_ptr<const ServedWeights> weights;    // null: unknown
  std::string tokenizer_hash, chat_template_hash;  // SHA-256 of tokenizer.json and of the template; or empty
  // Defaults of requests.
  TokenSampling sampling;
  std::vector<int32_t> stop_tokens;
  // Requests without a seed get consecutive ones from here.
  uint64_t seed = 0;
};

// Reads tokenizer, chat template and default sampling of a model folder. Without a chat template it serves
// completions only. Throws Error(kBadRequest) that names the file.
ServedModel ReadFolderModel(const std::filesystem::path& model_folder);

}  // namespace kevin::local
