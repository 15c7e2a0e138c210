#pragma once
// What an episode is asked to do: its options, whether problem, policy and environment permit them, and what they say to
// the parts of an episode: the prompt, the judge, the record in the store. Pure, but for `graph_of`; any thread.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "agent/conversation.h"
#include "agent/judge.h"
#include "agent/task.h"
#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/records.h"

namespace kevin {

class Memory;
// --diagnose: the correct turns after which the policy is told evidence of what limits its kernel
// (env/diagnosis/diagnosis.h): none, those that lead, all. A diagnosis takes about a second.
enum class DiagnoseTurns { kOff, kBest, kAll };
DiagnoseTurns DiagnoseTurnsNamed(const std::string& name);  // "off", "all"; any other name is "best"

struct EpisodeOptions {
  int turns = 8;                  // with continue_episode: further turns
  uint64_t seed = 0;              // of the policy's choices; evaluations draw their own
  std::string kind;               // --kind: of candidates; empty: the environment's first
  Workload workload;              // its precision is applied to the problem before; size empty: the default
  std::string prompts = "kevin";  // --prompts: or "kernelbench" (agent/conversation.h)
  std::string note;               // --note, part of every prompt
  std::string start_source;       // --from: judged as turn 0; later speed-ups are also given against it
  std::string start_kind;         // of start_source; empty: that of the episode
  bool asks_for_diff = false;     // --edit-format diff: later turns may change the latest kernel by a diff
  int tune = 0;              // --tune: settings of a candidate's knobs that are tried; 0: their first values
  Memory* memory = nullptr;  // --memory: fills Task::related before the first turn; not owned, may be null
  bool profile = false;      // --profile, as in EvaluateOptions
  DiagnoseTurns diagnose = DiagnoseTurns::kBest;
  bool diagnose_last = true;  // false: not after the last turn, where no reply follows
  std::filesystem::path profile_report;
  bool confirm = true;           // false: the winner is not measured again, and no speed-up is stored for it
  std::optional<double> until;   // stop when the low end of a confirmed speed-up reaches this
  std::string continue_episode;  // full id of an episode to continue
  std::string run;               // id of this process's run in the store
  std::string collection;        // the run that a new episode belongs to; empty: `run`
  Lease lease;                   // of the work item that asks for a new episode; may be empty
  // With continue_episode: complete an episode that was broken off as if it had not been. `turns` is then its
  // total number of turns, and stored confirmations count.
  bool finish = false;
  const CancelToken* drain = nullptr;  // once true, the turn in progress is the last; may be null
  std::filesystem::path output = "kevin-out";
  std::string machine;  // one line for the prompt, unless the environment's facts have one
  int threads = 1;      // that a candidate may use, for the prompt and the task
  Sampling sampling;    // its seed is replaced by `seed`
  int64_t prompt_token_budget = 8192;
  AuditRates audit_rates;
};

// The options to continue a stored episode for `more_turns`: its size, inputs, seed, TF32, note and start.
EpisodeOptions OptionsToContinue(const EpisodeRecord& episode, int more_turns);

// Throws Error(kBadRequest) when the policy cannot work on the problem with candidates of this kind (with its
// reason), or when the kernel of --from is of another kind. `options.workload.size` must be set. RunEpisode
// checks this too; a caller that knows the kind can check before it starts an environment.
// `graph_of` gives the graphs to policies that read them.
void RequirePolicyFor(const Problem& problem, const Policy& policy, const EpisodeOptions& options,
                      const std::string& kind, const GraphFunction& graph_of);

// The same for the parts of the environment: throws Error(kBadRequest) for a kind that it does not judge, and for prompts
// of another kind.
void RequireKindAndPrompts(const EnvironmentFacts& facts, const EpisodeOptions& options);

// Throws Error(kBadRequest) where results of now cannot be compared with those of `earlier`, an episode to continue:
// another text of the problem, precision or model of device.
void RequireSameTask(const EpisodeRecord& earlier, const Problem& problem, const EnvironmentFacts& facts);

// With the size and the machine of the environment where they were left open.
EpisodeOptions CompletedBy(const EnvironmentFacts& facts, EpisodeOptions options);

// Of the candidates: options.kind, else the environment's first kind.
const std::string& CandidateKindOf(const EpisodeOptions& options, const EnvironmentFacts& facts);

// For completed options. `facts` may be empty where no environment runs: the prompt then says nothing of the machine.
ConversationContext ConversationContextOf(const SizedProblem& sized, const EpisodeOptions& options,
                                          const std::string& kind, const EnvironmentFacts& facts = {});
EvaluateOptions EvaluateOptionsOf(const EpisodeOptions& options);
EpisodeRecord NewEpisode(const Problem& problem, const std::string& policy, const EnvironmentFacts& facts,
                         const EpisodeOptions& options);

}  // namespace kevin
