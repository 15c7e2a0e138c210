#pragma once
// START HERE for the agent: one episode, turn after turn.
//
//   for each turn:   build the prompt      conversation.h
//                    ask the policy        ask.h
//                    read its reply        parse.h
//                    judge the candidate   judge.h, which chooses a setting of its knobs first
//                    write the feedback    feedback.h
//                    store the turn        journal.h
//   at the end:      confirm the winner    journal.h: only this measurement gives the episode's speed-up
//
// Every turn is stored in one transaction before the next one begins. An episode ends in one of three states:
//
//   done          all turns were made, or `until` was reached
//   interrupted   `*cancel` became true: the stored turns stay and nothing more is confirmed; or the policy's
//                 budget was reached: the winner among the turns so far is confirmed
//   failed        an Error: the stored turns stay, and the Error is thrown on

#include <functional>
#include <string>

#include "agent/episode_options.h"
#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/store.h"

namespace kevin {

// Callbacks on the thread that runs the episode; any may be empty.
struct EpisodeHooks {
  // The episode is stored, or found in the store when it is continued.
  std::function<void(const EpisodeRecord&)> on_begin;
  // "generate", then the environment's phases ("compile", "verify", "measure", "confirm").
  std::function<void(int turn, const std::string& phase)> on_phase;
  // The turn is stored. Turn 0 is the kernel of --from.
  std::function<void(const TurnRecord&, const EpisodeRecord&)> on_turn;
  // The turns are made; only confirmations follow.
  std::function<void()> on_confirm;
  // The policy's budget is reached; no further turns follow.
  std::function<void()> on_budget;
};

// Candidates are of options.kind, else of the environment's first kind. Returns the finished episode as stored. `cancel` may be
// null. Throws Error(kBadRequest) before anything is stored when the policy cannot work on the problem, the
// output folder is not writable, or the episode to continue had another problem text or device model.
EpisodeRecord RunEpisode(const Problem& problem, Policy& policy, Environment& environment, Store& store,
                         const EpisodeOptions& options, const EpisodeHooks& hooks, const CancelToken* cancel);

}  // namespace kevin
