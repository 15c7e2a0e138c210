#pragma once
// An episode so far -> the messages to a language model. agent/task.h gives the same content as plain data to the other
// policies. Pure; any thread.
//
// The form is that of Kevin (arXiv 2507.11948, section 4.1): one system and one user message. The worked
// example appears in the first turn only. Later turns show the best kernel and the latest one with the model's own summary
// and the feedback, without the reasoning, then a table of all attempts and short differences (agent/history.h). When the
// token budget is exceeded, differences are left out first, then the oldest rows of the table. Text that is equal in all
// turns comes first, and Message::cache_points mark its ends.
//
// With `prompts` "kernelbench" (--prompts) a request is one user message in the form of KernelBench's one-shot prompt, for
// models trained on it: the problem as a Python module (env/problem/python_model.h), one example pair in the first
// turn, the request for ModelNew; in later turns the earlier attempts with their feedback instead of the example.

#include <map>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/problem/problem.h"
#include "policies/policy.h"
#include "trajectories/records.h"

namespace kevin {

inline constexpr const char* kKernelBenchPrompts = "kernelbench";

// The constant part of an episode.
struct ConversationContext {
  const SizedProblem* problem = nullptr;  // not owned; of a size set with several shapes: at one of them
  std::vector<WeightedShape> shapes;      // all shapes of such a set; else empty
  std::string kind = "cpp";               // "cpp", "cuda", "ptx", "modelnew" or "triton"
  std::string prompts = "kevin";          // or "kernelbench", for kind `modelnew`
  bool on_gpu = false;                    // the device, for the kinds that run on both
  bool own_kernels = true;                // a `modelnew` candidate's own kernels must do the work
  std::string machine;                    // one line: processor, cores, instruction sets; or the GPU
  // Of EnvironmentFacts; empty and 0: unknown, and the prompt says nothing of it.
  std::string compiler, compiler_flags;
  double peak_gb_per_s = 0, peak_gflop_per_s = 0;
  std::map<std::string, double> unit_gflop_per_s;
  GpuLimits gpu;  // EnvironmentFacts::gpu; capability 0: the task keeps the defaults of TaskDevice
  bool kernelbench_inputs = false;  // Workload::inputs
  bool asks_for_diff = false;       // --edit-format diff: a later turn may change the latest kernel by a diff
  int threads = 1;
  int tune = 0;              // settings of knobs that are tried; below 2 the prompt says nothing of them
  bool tf32 = false;         // eager may use TF32, and so may the candidate
  std::string note;          // --note
  std::string start_source;  // --from
  std::vector<TaskShape> shape_graphs;  // for policies that read them, one a shape
  std::vector<TaskRelated> related;     // agent/memory.h, nearest first
  // Of both messages, counted by PromptTokens. The best kernel and the latest one are shown even beyond it.
  int64_t prompt_token_budget = 8192;
};

// An estimate without a tokenizer: four bytes are one token.
int64_t EstimateTokens(const std::string& text);

// The tokens of `messages`, from their bytes: at a quarter token a byte, or at the server's ratio for the
// prompts of `turns` where that is larger.
int64_t PromptTokens(const std::vector<Message>& messages, const std::vector<TurnRecord>& turns);

// `turns`: the episode's turns so far in order, with turn 0 (the kernel of --from) if there is one.
std::vector<Message> BuildMessages(const ConversationContext& context, const std::vector<TurnRecord>& turns);

// Name of the template that BuildMessages uses: "first_turn", "refine_turn" or "kernelbench".
const char* PromptTemplateFor(const ConversationContext& context, const std::vector<TurnRecord>& turns);

}  // namespace kevin
