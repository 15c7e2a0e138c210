#pragma once
// START HERE for policies: a chat goes in, a Completion comes out. A policy knows no environment and no
// database; `agent` fills the request. Implementations: search/ (no model needed), remote/ (any LLM API),
// replay/ (stored answers), and the scripted one in tests.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "env/error.h"

namespace kevin {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
  // Offsets in `content`, ascending. The next turn's message is likely to begin with the same bytes up to
  // each of them; providers that cache prompts on request are told so.
  std::vector<size_t> cache_points = {};
};

// What is not set is left to the policy or its server. A policy that lacks what is set throws
// Error(kBadRequest) rather than ignore it; `seed` alone is passed on only where there is such a thing.
struct Sampling {
  std::optional<double> temperature, top_p;  // Kevin (section 3.3) sampled at 0.9 and 1
  std::optional<int> top_k;
  int max_tokens = 16384;  // of the answer, reasoning included
  uint64_t seed = 0;
  std::vector<std::string> stop;
  int n = 1;                           // answers to one prompt; those after the first are Completion::others
  std::string reasoning_effort;        // the provider's word: "low", "high"
  std::optional<int> thinking_tokens;  // the most to think with, out of max_tokens
};

// The same turn as plain data, for policies that do not read prose. Language models ignore it.
struct TaskArgument {
  std::string name;
  std::string role;            // "input", "param", "params" (all of a deep network's in one block), "output"
  std::string cpp_type;        // "const float*", "float*", "long*"
  std::vector<int64_t> shape;  // at the size in question
  std::vector<std::string> shape_symbols;
};

struct TaskAttempt {
  std::string source;
  std::string outcome;  // "measured", "wrong", ...
  std::optional<double> speedup, speedup_low, speedup_high, candidate_us;
};

// The GPU in question, for kinds `cuda` and `ptx`; the defaults are an H200's.
struct TaskDevice {
  int multiprocessors = 132;
  int64_t block_shared_bytes = 227 << 10;  // the most that one block may have
};

struct Task {
  std::string problem;    // "level1/19"
  std::string kind;       // of the candidates: "cpp", "cuda"
  std::string reference;  // TorchScript text
  std::string signature;  // what `launch` must look like
  std::vector<std::string> families;
  std::map<std::string, int64_t> symbols;  // in scope in the candidate: size symbols, a block's offsets
  std::vector<TaskArgument> arguments;
  int shapes = 1;            // to be right at, compiled anew for each; symbols and arguments: of the first
  int threads = 1;           // kind cpp: cores
  TaskDevice device;         // kind cuda
  int turn = 1;              // from 1
  std::string start_source;  // --from, or empty
  std::vector<TaskAttempt> attempts;  // earlier turns, oldest first
  bool tf32 = false;                  // on a GPU: fp32 products may be rounded to TF32
};

// Counted by who answered. Prompt tokens include the cached and the cache-written ones, completion tokens the
// reasoning.
struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
  int64_t cache_write_tokens = 0;
};

// One request to a server on the way to a completion. Whatever became of it, it may have cost money, so each
// is reported twice: when it is about to be sent (outcome "sent") and when it has ended.
struct RequestAttempt {
  int number = 1;             // within one Complete, from 1
  std::string provider, url;  // "anthropic", "https://api.anthropic.com/v1/messages"
  std::string model;          // asked for
  std::string request;        // the exact body
  std::string outcome;        // "sent"; then "answered", "failed", "cancelled" or "cached" (nothing was sent)
  std::string error;          // why it failed, one line
  std::optional<int> status;  // HTTP's; none: no answer arrived
  std::optional<double> retry_after_s;               // as the server asked
  double seconds = 0;                                // from sending to the end
  std::optional<double> first_token_s;               // from sending to the first text or reasoning
  std::string served_model, request_id, stop_cause;  // as the server spells them
  std::optional<Usage> usage;                        // none: the server did not say
  std::optional<double> cost_usd;                    // none: unknown
  std::string response;                              // raw bytes, where they are to be kept
};

struct Request {
  std::vector<Message> messages;
  Sampling sampling;
  Task task;
  // Called within Complete, from its thread; what it throws goes through Complete. May be empty.
  std::function<void(const RequestAttempt&)> on_attempt = {};
};

enum class StopReason { kStop, kLength, kFiltered, kToolUse, kUnknown, kCancelled };
inline const char* StopReasonName(StopReason reason) {
  constexpr const char* kNames[] = {"stop", "length", "filtered", "tool_use", "unknown", "cancelled"};
  return kNames[static_cast<int>(reason)];
}

struct OtherAnswer {  // an answer beside the first, when Sampling::n asks for several
  std::string text, reasoning, stop_reason;
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;
};

// What exactly answered, as far as its server says so (kevin-model does): SHA-256 in hex, or empty.
// weights_hash of a model in training: RUN@STEPS.
struct ModelIdentity {
  std::string weights_hash, tokenizer_hash, template_hash;
  std::optional<int64_t> weights_version;  // of a model in training: the steps it had learnt
};

struct Completion {
  std::string text;
  std::string reasoning;                             // kept apart from text; never sent back
  std::vector<int32_t> prompt_token_ids, token_ids;  // empty when the policy has none
  std::vector<float> logprobs;
  Usage usage;
  std::string stop_reason;  // a StopReasonName
  std::string model;        // what answered, with its version
  ModelIdentity identity;
  std::vector<OtherAnswer> others;
  std::optional<double> cost_usd;  // of all requests it took; none: unknown, or there was none
};

// A limit on money, tokens or time that the person set: nothing more is asked, what was done is good.
class BudgetReached : public Error {
 public:
  using Error::Error;
};

// Nothing more is to be had from this policy: its key or account is refused, its server stays away.
class PolicyGone : public Error {
 public:
  using Error::Error;
};

// The prompt is longer than the model takes. Asking again with a shorter one may help.
class PromptTooLong : public Error {
 public:
  using Error::Error;
};

using CancelToken = std::atomic<bool>;
// Text as it comes; may be empty. An empty piece says: forget what came, it begins anew (a stream broke).
using OnText = std::function<void(const std::string& piece)>;

class Policy {
 public:
  virtual ~Policy() = default;
  // Blocks. May be called from many threads at once. Returns early with stop_reason "cancelled" when *cancel
  // becomes true. Throws Error (env/error.h) when it cannot answer, BudgetReached and PromptTooLong among
  // them.
  virtual Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) = 0;
  virtual std::string Name() const = 0;  // as stored with the episode: "search", "replay:EPISODE"
  // Whether an answer is worked out on this machine's processor. On a CPU none is then asked for while a pair
  // is timed.
  virtual bool LoadsProcessor() const { return false; }
  // Why this policy cannot work on the task, with what would; empty when it can. Asked before turn 1.
  virtual std::string WhyNot(const Task& task) const {
    (void)task;
    return "";
  }
};

}  // namespace kevin
