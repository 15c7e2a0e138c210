#pragma once
// What a client did wrong, or what went wrong for it, as OpenAI's API says it.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/generate/engine.h"
#include "policies/local/serve/served_model.h"
#include "policies/remote/json.h"

namespace kevin::local {

using Json = remote::Json;

class ApiError : public std::runtime_error {
 public:
  // `status`: HTTP's. `code` as in OpenAI's list ("context_length_exceeded"), `parameter` the field at fault;
  // both may be empty.
  ApiError(int status, const std::string& message, std::string code = "", std::string parameter = "")
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        parameter_(std::move(parameter)) {}
  int status() const { return status_; }
  Json Body() const;  // {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

 private:
  int status_;
  std::string code_, parameter_;
};

// The fields of a request's JSON body, with an ApiError (400) that names the field for what is not as it must
// be. A field that is null counts as absent.

class RequestFields {
 public:
  explicit RequestFields(const Json& body);  // outlives this

  std::optional<double> Number(const char* name, double low, double high) const;  // bounds included
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high) const;
  bool Flag(const char* name, bool otherwise) const;
  std::optional<std::string> Text(const char* name) const;
  // An object; empty when absent.
  Json Object(const char* name) const;
  // A text or a list of texts, none of them empty; at most `most`.
  std::vector<std::string> Texts(const char* name, size_t most) const;
  std::vector<int32_t> Integers(const char* name) const;
  bool Has(const char* name) const { return !remote::At(body_, name).is_null(); }
  const Json& At(const char* name) const { return remote::At(body_, name); }

  // Refuses the field unless it is absent or says what would be done anyway.
  void Lacks(const char* name, const Json& harmless) const;

 private:
  const Json& body_;
};

[[noreturn]] void RefuseField(const char* name, const std::string& why);

// The tokens that a model held most likely at each place of an answer, for clients that ask for them. Their
// logits then pass through the host, which slows these answers down.

class TopLogprobs {
 public:
  using Likely = std::vector<std::pair<int32_t, float>>;  // id, log-probability by the model; likeliest first

  explicit TopLogprobs(int count) : count_(static_cast<size_t>(count)) {}
  // Changes nothing. This object must outlive it.
  AnswerProcessor Recorder(int answer);
  // Of an answer's token, counted from 0, once it was drawn; it is forgotten here.
  Likely Take(int answer, size_t token);

 private:
  const size_t count_;
  std::mutex mutex_;
  std::map<std::pair<int, size_t>, Likely> seen_;
};

// A request's body -> what the engine is asked, and how to put what it answers. Fields are OpenAI's and
// vLLM's. What would change the answer and is not to be had is refused (ApiError); other unknown fields are
// ignored.

struct AnswerFormat {
  bool is_chat = false;
  bool stream = false, include_usage = false;
  bool logprobs = false;
  int top_logprobs = 0;        // chat: the most likely tokens beside the drawn one
  bool of_drawn_from = false;  // logprobs under the distribution drawn from; else the model's own
  bool token_ids = false;      // of prompt and answer
  bool opens_thought = false;  // the prompt ends within <think>
};

struct ParsedRequest {
  std::vector<GenerationRequest> prompts;  // more than one: completions only; answers are counted through
  AnswerFormat format;
  std::shared_ptr<TopLogprobs> top_logprobs;  // null: not asked for
};

// `seed`: for a request that has none.
ParsedRequest ParseChat(const Json& body, const ServedModel& model, uint64_t seed);
ParsedRequest ParseCompletion(const Json& body, const ServedModel& model, uint64_t seed);
// vLLM's /tokenize: a prompt or a chat.
std::vector<int32_t> ParseTokenize(const Json& body, const ServedModel& model);

}  // namespace kevin::local
