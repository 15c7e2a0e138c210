#pragma once
// START HERE for policies: a chat goes in, a Completion comes out. A policy knows no environment and no
// database; `agent` fills the request and evaluates the answer. Implementations:
//   search/   parameterised kernels, without a language model
//   remote/   any LLM API
//   local/    a language model on this machine, through the same client as remote/
//   replay/   stored answers
// README.md says how to add one.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "env/error.h"
#include "env/outcome.h"

namespace kevin {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
  // Offsets in `content`, ascending. The next turn's message probably begins with the same bytes up to each
  // of them. Providers that cache prompts on request get a mark there.
  std::vector<size_t> cache_points = {};
};

// A field without a value is left to the policy or its server. A policy that cannot honour a field throws
// Error(kBadRequest) rather than ignore it. Exception: `seed` is passed on only where the server takes one.
struct Sampling {
  std::optional<double> temperature, top_p;  // the Kevin paper (section 3.3) used 0.9 and 1
  std::optional<double> min_p;
  std::optional<int> top_k;  // 0: all tokens
  int max_tokens = 16384;    // of the answer, reasoning included
  uint64_t seed = 0;
  std::vector<std::string> stop;
  int n = 1;                           // answers to one prompt; those after the first are Completion::others
  std::string reasoning_effort;        // as the provider names it: "low", "high"
  std::optional<int> thinking_tokens;  // at most, out of max_tokens
};

// --- The turn as plain data, for policies that do not read prose. Language models ignore it. ---

struct TaskArgument {
  std::string name;
  // "input", "inout" (read and written in place), "param", "params" (one block with all parameters), "output"
  std::string role;
  std::string cpp_type;        // "const float*", "float*", "long*"
  std::vector<int64_t> shape;  // at the size of the task
  std::vector<std::string> shape_symbols;
};

struct TaskAttempt {
  std::string source;
  std::string outcome;  // "measured", "wrong", ...
  std::optional<double> speedup, speedup_low, speedup_high, candidate_us;
  // Of its knobs; `source` has the chosen setting in place of their lines.
  std::vector<KnobTrial> trials = {};
};

// The GPU, for kinds `cuda` and `ptx`; the defaults are an H200's.
struct TaskDevice {
  int multiprocessors = 132;
  int64_t block_shared_bytes = 227 << 10;  // the most that one block may have
  int capability = 90;                     // compute capability 9.0
};

// One shape of the size set of the task.
struct TaskShape {
  std::map<std::string, int64_t> symbols;  // constants in scope, as in Task::symbols
  std::string graph;     // of the reference, as JSON (env/reference/graph.h); empty: unavailable
  std::string no_graph;  // why
};

// --- Earlier results on problems that resemble this one (agent/memory.h); none without --memory ---

struct TaskRelatedKnob {
  std::string name;  // as in the text: "UNROLL"
  std::string role;  // what it sets, in the writer's words: "rows of a tile"; empty: unknown
  std::string
      stage;  // the form of the stage that it belongs to (search/program.h, StageForm); empty: of several
};

struct TaskRelatedResult {
  std::vector<int64_t> values;  // of TaskRelated::knobs, in their order
  double speedup = 0;           // of trials: from that of the text and the ratio of the short timings
};

// The correct kernels of one problem at one size on one device model, of the kind of the task.
struct TaskRelated {
  std::string problem, name;               // "level1/21", "Sigmoid"
  std::map<std::string, int64_t> symbols;  // the values of its shape symbols
  std::string precision, device;           // "fp32"; the device as people read it
  double nearness = 0;                     // 0 to 1; 1: the same stages at the same sizes, on the same device
  double speedup = 0, candidate_us = 0;    // of the fastest, over all its measurements
  KnobSetting chosen;                      // of the knobs that the fastest text declared; may be empty
  std::vector<TaskRelatedKnob> knobs;      // of the search policy's texts; empty: there are none
  std::vector<TaskRelatedResult> results;  // fastest first
};

struct Task {
  std::string problem;    // "level1/19"
  std::string kind;       // of the candidate: "cpp", "cuda"
  std::string reference;  // TorchScript text
  std::string signature;  // of `launch`
  std::vector<std::string> families;
  std::map<std::string, int64_t> symbols;  // constants in scope: size symbols, offsets in a parameter block
  std::vector<TaskArgument> arguments;
  int shapes = 1;  // the candidate is compiled for each; symbols and arguments are those of the first
  std::vector<TaskShape> shape_graphs;  // one a shape, in their order
  int threads = 1;                      // kind cpp: cores
  TaskDevice device;                    // kind cuda
  int turn = 1;                         // from 1
  std::string start_source;             // the kernel of --from, or empty
  std::vector<TaskAttempt> attempts;    // earlier turns, oldest first
  int tune = 0;       // settings of knobs that are tried each turn; 0: the first value of each is taken
  bool tf32 = false;  // on a GPU: fp32 products may be rounded to TF32
  std::vector<TaskRelated> related = {};  // nearest first
};

// --- What a request cost ---

// As counted by the server. Prompt tokens include the cached and the cache-written ones, completion tokens
// the reasoning.
struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
  int64_t cache_write_tokens = 0;
};

// One request to a server. It may cost money whatever its result, so it is reported twice: before it is sent
// (outcome "sent") and after it has ended.
struct RequestAttempt {
  int number = 1;             // within one Complete, from 1
  std::string provider, url;  // "anthropic", "https://api.anthropic.com/v1/messages"
  std::string model;          // as requested
  std::string request;        // the exact body
  std::string outcome;        // "sent"; then "answered", "failed", "cancelled" or "cached" (nothing was sent)
  std::string error;          // the reason of a failure, one line
  std::optional<int> status;  // of HTTP; none: no answer arrived
  std::optional<double> retry_after_s;               // as the server asked
  double seconds = 0;                                // from sending to the end
  std::optional<double> first_token_s;               // from sending to the first text or reasoning
  std::string served_model, request_id, stop_cause;  // as the server spells them
  std::optional<Usage> usage;                        // none: not reported by the server
  std::optional<double> cost_usd;                    // none: unknown
  std::string response;                              // raw bytes, where they are recorded
};

// --- Request and answer ---

struct Request {
  std::vector<Message> messages;
  Sampling sampling;
  Task task;
  // Called by Complete on its own thread; Complete passes its exceptions on. May be empty.
  std::function<void(const RequestAttempt&)> on_attempt = {};
};

enum class StopReason { kStop, kLength, kFiltered, kToolUse, kUnknown, kCancelled };
inline const char* StopReasonName(StopReason reason) {
  constexpr const char* kNames[] = {"stop", "length", "filtered", "tool_use", "unknown", "cancelled"};
  return kNames[static_cast<int>(reason)];
}

struct OtherAnswer {  // an answer after the first, when Sampling::n asks for several
  std::string text, reasoning, stop_reason;
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;
};

// The exact model, where its server reports it (kevin-model does): SHA-256 in hex, or empty.
// weights_hash of a model in training: RUN@STEPS.
struct ModelIdentity {
  std::string weights_hash, tokenizer_hash, template_hash;
  std::optional<int64_t> weights_version;  // of a model in training: its number of steps
};

// The distribution that tokens were drawn from: the model's at `temperature`, filtered. Unknown where it was left to
// a server that does not state it, and all of it where a penalty changed the distribution.
struct UsedSampling {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;  // 0: all tokens
};

struct Completion {
  std::string text;
  std::string reasoning;                             // separate from text; never sent back
  std::vector<int32_t> prompt_token_ids, token_ids;  // empty when the policy has none
  std::vector<float> logprobs;                       // one per token id
  Usage usage;
  std::string stop_reason;  // a StopReasonName
  std::string model;        // the model that answered, with its version
  ModelIdentity identity;
  UsedSampling sampling;
  std::vector<OtherAnswer> others;
  std::optional<double> cost_usd;  // of all requests of this completion; none: unknown, or no request
};

// --- Errors beyond Error (env/error.h) ---

// A limit on money, tokens or time that the user set is reached. Completed turns are good; no more are made.
class BudgetReached : public Error {
 public:
  using Error::Error;
};

// A permanent failure: the key or account is refused, or the server is unavailable.
class PolicyUnavailable : public Error {
 public:
  using Error::Error;
};

// The policy has no further answer, for example because every text that it can write was an attempt. Completed turns are
// good; the episode ends with them.
class NothingLeft : public Error {
 public:
  using Error::Error;
};

// The prompt is longer than the model's window. A shorter one may be accepted.
class PromptTooLong : public Error {
 public:
  using Error::Error;
};

using CancelToken = std::atomic<bool>;
// Receives text as it is generated; may be empty. An empty piece means: discard all pieces so far, the answer
// starts again (after a broken stream).
using OnText = std::function<void(const std::string& piece)>;

class Policy {
 public:
  virtual ~Policy() = default;
  // Blocks. May be called from many threads at once. Returns early with stop_reason "cancelled" when *cancel
  // becomes true. Throws Error when it cannot answer, or one of the four errors above.
  virtual Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) = 0;
  virtual std::string Name() const = 0;  // as stored with the episode: "search", "replay:EPISODE"
  // The device of this machine on which answers are computed: "cpu", "cuda:0"; empty: none. No answer is requested
  // while a pair is timed on it.
  virtual std::string ComputesOn() const { return ""; }
  // The locks (env/process/machine.h, DeviceLock) of further devices on which the same answers are computed.
  virtual std::vector<std::string> FurtherLocks() const { return {}; }
  // Whether many answers at once take little more time than one, so that episodes do better to wait for each other.
  virtual bool AnswersTogether() const { return false; }
  // Whether it reads Task::shape_graphs, which are empty otherwise.
  virtual bool ReadsGraphs() const { return false; }
  // Why this policy cannot work on the task; empty when it can. The first line is the reason, further lines say what
  // it can do and what else could. Called before turn 1.
  virtual std::string WhyNot(const Task& task) const {
    (void)task;
    return "";
  }
};

}  // namespace kevin
