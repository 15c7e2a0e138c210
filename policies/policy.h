#pragma once
// START HERE for policies: a chat goes in, a Completion comes out. A policy knows no environment and no
// database; `agent` fills the request. Implementations: search/ (no model needed), replay/ (stored answers),
// and the scripted one in tests.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kevin {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct Sampling {
  double temperature = 0.9;  // Kevin, section 3.3
  double top_p = 1.0;
  int max_tokens = 16384;
  uint64_t seed = 0;
};

// The same turn as plain data, for policies that do not read prose. Language models ignore it.
struct TaskArgument {
  std::string name;
  std::string role;            // "input", "param", "output"
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
  std::map<std::string, int64_t> symbols;  // size symbols in scope in the candidate
  std::vector<TaskArgument> arguments;
  int threads = 1;                    // kind cpp: cores
  TaskDevice device;                  // kind cuda
  int turn = 1;                       // from 1
  std::string start_source;           // --from, or empty
  std::vector<TaskAttempt> attempts;  // earlier turns, oldest first
  bool tf32 = false;                  // on a GPU: fp32 products may be rounded to TF32
};

struct Request {
  std::vector<Message> messages;
  Sampling sampling;
  Task task;
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
};

struct Completion {
  std::string text;
  std::string reasoning;                             // kept apart from text; never sent back
  std::vector<int32_t> prompt_token_ids, token_ids;  // empty when the policy has none
  std::vector<float> logprobs;
  Usage usage;
  std::string stop_reason;  // "stop", "length", "cancelled"
  std::string model;        // what answered, with its version or weights hash
};

using CancelToken = std::atomic<bool>;
using OnText = std::function<void(const std::string& piece)>;  // text as it comes; may be empty

class Policy {
 public:
  virtual ~Policy() = default;
  // Blocks. May be called from many threads at once. Returns early with stop_reason "cancelled" when *cancel
  // becomes true. Throws Error (env/error.h) when it cannot answer.
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
