#pragma once
// The wire formats: how a request is put to a server, and how its answer is read. One .cc each; a new format
// is a new function here and its line in MakeWire.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/remote/answer.h"
#include "policies/remote/json.h"
#include "policies/remote/sse_parser.h"

namespace kevin::remote {

enum class Format {
  kChat,         // OpenAI chat completions: POST {base}/chat/completions
  kResponses,    // OpenAI Responses: POST {base}/responses
  kMessages,     // Anthropic Messages: POST {base}/v1/messages
  kCompletions,  // token ids in, text out: POST {base}/completions (vLLM)
  kGenerate,     // SGLang's own: POST {root}/generate
};

// What a format needs to know beside the request.
struct WireContext {
  std::string model;
  bool is_vendors_own = false;  // api.openai.com and api.anthropic.com, not a compatible server
  bool wants_tokens = false;    // token ids and log-probabilities
  bool stream = true;
  Json extra;                             // fields laid over the body; null: none
  std::vector<int32_t> prompt_token_ids;  // kCompletions, kGenerate
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual const char* Provider() const = 0;  // as stored with each request: "openai", "anthropic"
  virtual std::string Path() const = 0;      // after the base URL
  virtual std::vector<std::string> Headers(const std::string& key) const = 0;
  // What the format cannot say; empty: nothing.
  virtual std::string WhyNot(const Sampling& sampling, const WireContext& context) const = 0;
  virtual Json Body(const Request& request, const WireContext& context) const = 0;
  virtual void ReadEvent(const SseEvent& event, const Json& data, Answer* answer) const = 0;
  // An answer that is no stream.
  virtual void ReadBody(const Json& body, Answer* answer) const = 0;
};

std::unique_ptr<Wire> MakeChatWire();
std::unique_ptr<Wire> MakeResponsesWire();
std::unique_ptr<Wire> MakeMessagesWire();
std::unique_ptr<Wire> MakeCompletionsWire();
std::unique_ptr<Wire> MakeGenerateWire();
std::unique_ptr<Wire> MakeWire(Format format);

// --- What several formats share ---
std::vector<std::string> BearerHeaders(const std::string& key);
// Reads `{"error": {...}}`, `{"error": "..."}` and `{"message": ...}`.
std::optional<ServerError> ErrorIn(const Json& body);
StopReason StopReasonOfOpenAi(const std::string& finish_reason);
std::optional<Usage> UsageOfOpenAi(const Json& usage);  // prompt_tokens, completion_tokens, ...
void AddCommonSampling(const Sampling& sampling, Json* body);
// Servers take different widths; the low 31 bits are good for all.
int64_t SeedToSend(const Sampling& sampling);
std::vector<int32_t> TokenIds(const Json& list);

}  // namespace kevin::remote
