#pragma once
// One turn's request to the policy and its reply: the prompt, the call, tokens and seconds as a turn of the record. Where
// the policy computes on a device that is timed, it answers in the answering phase (agent/phase_gate.h), in shared
// execution of that device. Used by one thread.

#include <cstdint>
#include <functional>
#include <string>

#include "agent/conversation.h"
#include "agent/episode_options.h"
#include "agent/journal.h"
#include "agent/phase_gate.h"
#include "policies/policy.h"

namespace kevin {

// A turn of which only number, run and prompts are known.
TurnRecord NewTurn(int number, const std::string& run);

// The gate between answers and verdicts; null where the policy does not answer on a device that judges. `judges`: as in
// EnvironmentFacts::device.
PhaseGate* GateOf(const Policy& policy, const std::string& judges);

// The seed of a turn's draws: the episode's own in turn 1, one derived from it in each later turn. With one seed for all
// turns, equal prompts would get equal replies, and draws at equal positions would depend on each other.
uint64_t TurnSeed(uint64_t episode_seed, int turn);

class Asker {
 public:
  // Keeps references. `gate` and `cancel` may be null.
  Asker(Policy& policy, const EpisodeOptions& options, Journal& journal, PhaseGate* gate,
        const CancelToken* cancel)
      : policy_(policy), options_(options), journal_(journal), gate_(gate), cancel_(cancel) {}

  // The reply to the prompt of `context` and the journal's turns; its text is still to be parsed. Each attempt of the
  // policy is stored. `on_phase` hears "generate", and why an attempt is repeated. While the server rejects the prompt as
  // too long, context->prompt_token_budget is reduced, for later turns too. Throws what the policy throws.
  TurnRecord Ask(int number, ConversationContext* context,
                 const std::function<void(const std::string&)>& on_phase);

 private:
  Completion CompleteShortened(Request* request, ConversationContext* context);

  Policy& policy_;
  const EpisodeOptions& options_;
  Journal& journal_;
  PhaseGate* const gate_;
  const CancelToken* const cancel_;
};

}  // namespace kevin
