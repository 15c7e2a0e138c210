#pragma once
// Many episodes at once, from a queue that other processes may work on too (trajectories/work_queue.h).
//
// Each of `parallel` threads leases an item and runs its episode, or what is missing of it. Policies answer
// and compilers work side by side; on a device one candidate is measured at a time. A thread beside them
// renews the leases, takes over what dead processes of this machine left, and watches the budget.
//
//   the episode ends            the item is done
//   drained, or out of budget   the turn in hand is finished and stored, the item goes back
//   stopped                     the turn in hand is thrown away, the item goes back
//   Error of the machinery      the turn is void; the item rests and is tried again, `most_faults` times
//   without
//                               a turn between them, then it is parked
//   it may be what ended earlier processes    it is alone in this process until a turn is stored, so that
//   nothing
//                               else is blamed for it
//   Error(kBadRequest)          parked: trying again would not help
//   PolicyUnavailable           the item goes back; Run throws
//   the store is broken, or nothing but faults for a while: Run throws, leases run out by themselves

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/episode.h"
#include "agent/rollout/budget.h"
#include "agent/rollout/work_spec.h"
#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/work_queue.h"

namespace kevin {

struct RolloutOptions {
  std::string collection, worker_run;
  EpisodeOptions episode;  // what all episodes share; turns, seed, run, lease, ... are filled by the rollout
  int parallel = 4;
  double lease_s = 60;
  int most_kills = 3, most_faults = 6;
  double rest_s = 5;  // after the first fault; doubles with each
  Budget budget;
};

struct PolicySettings {
  Sampling sampling;
  int64_t prompt_token_budget = 8192;
};

// What an item names, as things. Called from many threads; what is returned must stay.
struct RolloutSources {
  std::function<const Problem&(const EpisodeSpec&)> problem;
  std::function<Policy&(const std::string& name)> policy;
  // How it samples and how long its prompts may be; empty: as RolloutOptions::episode says.
  std::function<PolicySettings(const std::string& name)> settings = {};
};

struct RunningEpisode {
  std::string problem, policy;
  int number = 0, turn = 0;
  std::string phase;
};

struct RolloutStatus {
  QueueCounts counts;
  std::vector<RunningEpisode> running;  // in this process
  std::vector<ProblemResult> results;
  CollectionUsage usage;
  double seconds = 0;   // since this process began
  int64_t turns = 0;    // stored by this process
  double device_s = 0;  // that this process kept devices busy
  bool draining = false;
};

// Any may be empty. Called by one thread at a time.
struct RolloutHooks {
  std::function<void(const EpisodeRecord&, const EpisodeSpec&, bool resumed)> on_begin;
  std::function<void(const TurnRecord&, const EpisodeRecord&)> on_turn;
  std::function<void(const EpisodeRecord&)> on_episode;  // it is done
  std::function<void(const EpisodeSpec&, const std::string& error, bool parked)> on_fault;
  std::function<void(const RolloutStatus&)> on_progress;  // about once a second
};

struct RolloutEnd {
  bool complete = false;  // nothing is left to do in the whole collection
  std::string out_of;     // which budget ended it; may be empty
};

// `drain` and `stop` may be null. Throws what broke the store, or the latest fault when there was nothing
// else.
RolloutEnd RunRollout(Store& store, Environment& environment, const RolloutSources& sources,
                      const RolloutOptions& options, const RolloutHooks& hooks, const CancelToken* drain,
                      const CancelToken* stop);

}  // namespace kevin
