#pragma once
// START HERE for serving: many answers at once from one ModelRunner. Each step runs one token of every answer
// under way and, with what room is left, pieces of new prompts. Prompts that begin alike share pages of the
// cache, within a request and between requests, also after the first of them has ended. Where pages run out
// the youngest answer gives its own back and computes them again later.
//
// What an answer says depends on its request and seed alone (as far as the runner's rounding does not depend
// on what else is in a step), however it was batched, cut, shared or put off.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/error.h"
#include "policies/local/generate/model_runner.h"

namespace kevin::local {

// Turns one answer's tokens into text, never cutting a character in two.
class TokenText {
 public:
  virtual ~TokenText() = default;
  virtual std::string Add(int32_t id) = 0;
  virtual std::string Finish() = 0;
};

// Changes the logits of an answer's next token, knowing the tokens of the answer so far. From the engine's
// thread.
using AnswerProcessor = std::function<void(std::span<const int32_t> answer, std::span<float> logits)>;

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  int answers = 1;
  TokenSampling sampling;               // answer i draws with AnswerSeed(sampling.seed, i)
  int max_tokens = 1 << 30;             // of each answer; the context ends it too
  std::vector<int32_t> stop_tokens;     // end an answer; the last of its tokens, not in its text
  std::vector<std::string> stop_texts;  // end it too; its text is cut before them
  std::function<std::unique_ptr<TokenText>()> make_text;      // null: no text, and no stop_texts
  std::function<AnswerProcessor(int answer)> make_processor;  // null: none
};

// Answer 0 draws with the seed itself.
uint64_t AnswerSeed(uint64_t seed, int answer);

enum class FinishReason { kStop, kLength, kCancelled, kFailed };

// What is new of one answer.
struct AnswerPiece {
  int answer = 0;
  std::vector<SampledToken> tokens;
  std::string text;  // may lag behind the tokens: what may yet become a stop text is held back
  std::optional<FinishReason> finish;  // the last piece of this answer
  int cached_tokens = 0;  // with `finish`: of the prompt, found in the cache when this answer began
  std::string error;      // with kFailed: why
};
// From the engine's thread; must not wait for anything and must not throw. May call Engine::Cancel.
using OnPiece = std::function<void(const AnswerPiece&)>;

struct EngineStatistics {
  int64_t requests = 0, answers = 0;      // taken since the start
  int64_t generated_tokens = 0;           // in answers
  int64_t wasted_tokens = 0;              // drawn for answers that had ended
  int64_t prompt_tokens = 0;              // of all answers
  int64_t cached_tokens = 0;              // of these, found in the cache
  int64_t run_tokens = 0;                 // through the model, repetitions included
  int64_t steps = 0, step_sequences = 0;  // step_sequences: summed over steps
  int64_t preemptions = 0;
  double busy_s = 0;                                // with something to do
  int running = 0, waiting = 0;                     // answers, now
  int pages = 0, used_pages = 0, cached_pages = 0;  // cached: kept, in use by nobody
};

class Engine {
 public:
  // Takes over the runner and its thread of use.
  explicit Engine(std::unique_ptr<ModelRunner> runner);
  ~Engine();  // answers under way end as cancelled
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // All of these from any thread.

  // Returns the request's number. Throws PromptTooLong (policies/policy.h) when not even one token fits
  // behind the prompt, Error(kBadRequest) for what makes no sense (an empty prompt, an unknown token), and
  // what the runner died of.
  int64_t Submit(GenerationRequest request, OnPiece on_piece);
  // Its answers end soon, as cancelled. What has ended or never was is ignored.
  void Cancel(int64_t request);
  // Runs `change`, which may write to the model's weights, on the calling thread while the runner stands
  // still. What is cached of earlier texts is forgotten with it; answers under way go on after it, their keys
  // and values computed anew. Throws what `change` throws. One call at a time.
  void WhileStill(const std::function<void()>& change);
  EngineStatistics Statistics() const;
  const ModelRunner::Shape& GetShape() const;
  int ContextTokens() const;  // the most that prompt and answer may have: the context, or all of the cache
  // Why the runner died, once it has. Answers then under way have ended as failed.
  std::optional<Error> Failure() const;

 private:
  class Worker;
  const std::unique_ptr<Worker> worker_;
};

}  // namespace kevin::local
