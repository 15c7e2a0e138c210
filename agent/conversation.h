#pragma once
// An episode so far -> the next request to the policy: the messages for language models and the same as plain
// data for the others. The shape is Kevin's (arXiv 2507.11948, section 4.1): one system and one user message;
// the worked example in the first turn only; later turns show every earlier kernel with the model's own
// summary and its result, oldest first, without the reasoning; what does not fit is dropped from the oldest
// on. What stays the same from turn to turn comes first, and Message::cache_points say how far. Pure
// functions of their arguments; safe from any thread.

#include <string>
#include <vector>

#include "env/problem/problem.h"
#include "policies/policy.h"
#include "trajectories/records.h"

namespace kevin {

// What stays the same during an episode.
struct ConversationContext {
  const SizedProblem* problem = nullptr;  // not owned; of a size set with several shapes: at one of them
  std::vector<WeightedShape> shapes;      // all shapes of such a set; else empty
  std::string kind = "cpp";               // "cpp" or "cuda": kinds with prompts of their own
  std::string machine;                    // one line: processor, cores, instruction sets; or the GPU's
  int threads = 1;
  bool tf32 = false;         // eager may use TF32, and so may the candidate
  std::string note;          // --note
  std::string start_source;  // --from
  // Both messages together, as PromptTokens counts; the latest attempt is shown in any case.
  int64_t prompt_token_budget = 8192;
};

// A rough count that needs no tokenizer: four characters are one token.
int64_t EstimateTokens(const std::string& text);

// What counts against prompt_token_budget: at four characters a token, or as the server counted the prompts
// of `turns`, when that is more.
int64_t PromptTokens(const std::vector<Message>& messages, const std::vector<TurnRecord>& turns);

// `turns`: the episode's turns so far in order, turn 0 (the kernel of --from) included if there is one.
std::vector<Message> BuildMessages(const ConversationContext& context, const std::vector<TurnRecord>& turns);
Task BuildTask(const ConversationContext& context, const std::vector<TurnRecord>& turns);

// Name of the template that BuildMessages uses: "first_turn" or "refine_turn".
const char* PromptTemplateFor(const std::vector<TurnRecord>& turns);

}  // namespace kevin
