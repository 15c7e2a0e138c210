#pragma once
// From a request's JSON body to the request to the engine and the format of its reply. Fields are OpenAI's
// and vLLM's. A field that would change the answer and is not supported is an ApiError; other unknown fields
// are ignored.

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

// An error reply of OpenAI's API.
class ApiError : public std::runtime_error {
 public:
  // `status`: of HTTP. `code`: from OpenAI's list ("context_length_exceeded"). `parameter`: the invalid
  // field. Both may be empty.
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

// The fields of a request's JSON body. An invalid one throws ApiError(400) that names it. A field that is
// null counts as absent.
class RequestFields {
 public:
  explicit RequestFields(const Json& body);  // `body` must outlive this

  std::optional<double> Number(const char* name, double low, double high) const;  // bounds included
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high) const;
  bool Flag(const char* name, bool otherwise) const;
  std::optional<std::string> Text(const char* name) const;
  // An object; empty when absent.
  Json Object(const char* name) const;
  // A text or a list of at most `most` texts, none of them empty.
  std::vector<std::string> Texts(const char* name, size_t most) const;
  std::vector<int32_t> Integers(const char* name) const;
  bool Has(const char* name) const { return !remote::At(body_, name).is_null(); }
  const Json& At(const char* name) const { return remote::At(body_, name); }

  // Throws for an unsupported field, unless it is absent or equal to `harmless`.
  void Lacks(const char* name, const Json& harmless) const;

 private:
  const Json& body_;
};

[[noreturn]] void RefuseField(const char* name, const std::string& why);

// The most likely tokens at each position of an answer, for clients that ask for them. The logits then pass
// through the host, which makes these answers slower.
class TopLogprobs {
 public:
  using Likely = std::vector<std::pair<int32_t, float>>;  // id, log-probability by the model; likeliest first

  explicit TopLogprobs(int count) : count_(static_cast<size_t>(count)) {}
  // A processor that records and changes nothing. This object must outlive it.
  AnswerProcessor Recorder(int answer);
  // The entry of token `token` (from 0) of an answer, once drawn; removes it.
  Likely Take(int answer, size_t token);

 private:
  const size_t count_;
  std::mutex mutex_;
  std::map<std::pair<int, size_t>, Likely> seen_;
};

struct AnswerFormat {
  bool is_chat = false;
  bool stream = false, include_usage = false;
  bool logprobs = false;
  int top_logprobs = 0;        // chat: number of most likely tokens reported beside the drawn one
  bool of_drawn_from = false;  // logprobs under the sampling distribution; false: under the model's own
  bool token_ids = false;      // of prompt and answer
  bool opens_thought = false;  // the prompt ends within <think>
};

struct ParsedRequest {
  std::vector<GenerationRequest>
      prompts;  // several only in completions; answers are numbered over all prompts
  AnswerFormat format;
  std::shared_ptr<TopLogprobs> top_logprobs;  // null: not requested
};

// `seed`: for a request without one.
ParsedRequest ParseChat(const Json& body, const ServedModel& model, uint64_t seed);
ParsedRequest ParseCompletion(const Json& body, const ServedModel& model, uint64_t seed);
// vLLM's /tokenize: a prompt or a chat.
std::vector<int32_t> ParseTokenize(const Json& body, const ServedModel& model);

}  // namespace kevin::local
