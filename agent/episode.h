#pragma once
// START HERE for the agent: one episode, turn after turn.
//
//   ask the policy -> read its reply -> judge the candidate -> store the turn -> tell the policy, and so on;
//   at the end the winner is measured again, and only that measurement gives the episode's speed-up.
//
// Every turn is stored in one transaction before the next begins, so that an episode ends well whenever it
// ends:
//   done          all turns were made, or `until` was reached
//   interrupted   `*cancel` became true: what was done is kept, nothing is confirmed any more; or the
//   policy's
//                 budget was reached: the winner among the turns so far is confirmed
//   failed        an Error; it is thrown on, after what was done is kept

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "agent/judge.h"
#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/store.h"

namespace kevin {

struct EpisodeOptions {
  int turns = 8;             // with continue_episode: how many more
  uint64_t seed = 0;         // of the policy's choices; evaluations draw their own
  Workload workload;         // its precision is applied to the problem before; size empty: the default
  std::string note;          // --note, goes into every prompt
  std::string start_source;  // --from: judged as turn 0; later speed-ups are also given against it
  std::string start_kind;    // of start_source; empty: that of the episode
  bool profile = false;      // --profile, as in EvaluateOptions
  std::filesystem::path profile_report;
  bool confirm = true;           // false: the winner is not measured again, and no speed-up is claimed for it
  std::optional<double> until;   // stop when the low end of a confirmed speed-up reaches this
  std::string continue_episode;  // an episode's full id: go on in it
  std::string run;               // id of this process's run in the store
  std::string collection;        // the run that a new episode belongs to; empty: `run`
  Lease lease;                   // of the work item that asks for a new episode; may be empty
  bool finish = false;           // continue_episode was broken off: end it as if it had not been; `turns` is
                                 // then how many it has in the end, and confirmations made count
  const CancelToken* drain = nullptr;  // once true, the turn in hand is the last; may be null
  std::filesystem::path output = "kevin-out";
  std::string machine;  // one line for the prompt, where the environment's facts have none
  int threads = 1;      // that a candidate may use, for the prompt and the task
  Sampling sampling;    // its seed is replaced by `seed`
  int64_t prompt_token_budget = 8192;
  AuditRates audit_rates;
};

// What the caller may watch; any may be empty. Called from the thread that runs the episode.
struct EpisodeHooks {
  std::function<void(const EpisodeRecord&)> on_begin;  // stored, or found to be continued
  // "generate", then the environment's phases ("compile", "verify", "measure", "confirm").
  std::function<void(int turn, const std::string& phase)> on_phase;
  std::function<void(const TurnRecord&, const EpisodeRecord&)>
      on_turn;                      // stored; turn 0 is the kernel of --from
  std::function<void()> on_budget;  // the policy's is reached: there are no more turns
};

// The options under which a stored episode goes on for `more_turns`: its problem size, inputs, seed, TF32,
// note and start.
EpisodeOptions OptionsToContinue(const EpisodeRecord& episode, int more_turns);

// Throws Error(kBadRequest) when an episode of this kind of candidate cannot be: with the policy's reason
// when it cannot work on the problem, or because the kernel of --from is of another kind. `options.workload.size`
// must be given. RunEpisode asks too; asking first, where the kind is certain, spares starting an environment.
void RequirePolicyFor(const Problem& problem, const Policy& policy, const EpisodeOptions& options,
                      const std::string& kind);

// The kind of the episode is the environment's first. Returns the finished episode as stored. `cancel` may be
// null. Throws Error(kBadRequest) before anything is stored when the policy cannot work on the problem, the
// output folder cannot be written, or the episode to continue was about another problem text or another
// device.
EpisodeRecord RunEpisode(const Problem& problem, Policy& policy, Environment& environment, Store& store,
                         const EpisodeOptions& options, const EpisodeHooks& hooks, const CancelToken* cancel);

}  // namespace kevin
