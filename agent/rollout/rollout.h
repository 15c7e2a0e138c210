#pragma once
// START HERE for collections: many episodes at once, from a queue that other processes may use at the same
// time (trajectories/work_queue.h).
//
// Each thread leases an item and runs its episode, or the missing part of it. `parallel` episodes make turns at
// once; while one confirms its winner the next one begins. One at a time, the environment is told of the next problem
// before an episode's last turn (Environment::Expect). Policies answer and compilers work in parallel; a device
// measures one candidate at a time. One more thread renews the leases, takes over items of ended processes of this
// machine, and checks the budget. Every event has one effect on the item:
//
//   event                          effect
//   the episode ends               the item is done
//   drained, or out of budget      the turn in progress is finished and stored; the item goes back to the queue
//   stopped                        the turn in progress is discarded; the item goes back
//   Error of the infrastructure    the turn is discarded; the item rests and is tried again; after `most_faults`
//                                  such errors without a turn between them it is parked
//   Error(kBadRequest)             the item is parked: a retry would fail too
//   it may have ended earlier      it runs in exclusive execution (exclusive_gate.h) until a turn is stored, so
//   processes                      that no other item is blamed
//   the policy is unavailable      the item goes back; RunRollout throws
//   the store is broken, or only   RunRollout throws; the leases expire
//   errors for some time
//
// An episode stays on the model of device that it was begun on. The rollout ends where only items of other models are
// left and nobody works on one; while somebody does, it waits.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/episode.h"
#include "agent/rollout/collection.h"
#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/work_queue.h"

namespace kevin {

struct RolloutOptions {
  std::string collection, worker_run;
  EpisodeOptions episode;  // common to all episodes; turns, seed, run, lease, ... are set by the rollout
  int parallel = 4;
  double lease_s = 60;
  int most_kills = 3, most_faults = 6;
  double rest_s = 5;  // after the first error; doubles with each
  // Models of device (DeviceModel) on which others work: items that were begun on them are waited for.
  std::vector<std::string> devices_of_others = {};
  Budget budget;
};

struct PolicySettings {
  Sampling sampling;
  int64_t prompt_token_budget = 8192;
  bool asks_for_diff = false;  // as in EpisodeOptions
};

// The objects that an item names. Called from many threads; what is returned must outlive the rollout.
struct RolloutSources {
  std::function<const Problem&(const EpisodeSpec&)> problem;
  std::function<Policy&(const std::string& name)> policy;
  // A policy's sampling and prompt length; empty: those of RolloutOptions::episode.
  std::function<PolicySettings(const std::string& name)> settings = {};
};

struct RunningEpisode {
  std::string problem, policy;
  int number = 0, turn = 0;
  std::string phase;
  int stored = 0;  // turns of it in the database
};

struct RolloutStatus : RolloutTotals {
  QueueCounts counts;
  std::vector<RunningEpisode> running;  // in this process
  double seconds = 0;                   // since this process began
  bool draining = false;
};

// Any may be empty. One call at a time.
struct RolloutHooks {
  std::function<void(const EpisodeRecord&, const EpisodeSpec&, bool resumed)> on_begin;
  std::function<void(const TurnRecord&, const EpisodeRecord&)> on_turn;
  std::function<void(const EpisodeRecord&)> on_episode;  // the episode is done
  std::function<void(const EpisodeSpec&, const std::string& error, bool parked)> on_fault;
  std::function<void(const RolloutStatus&)> on_progress;  // about once a second
};

struct RolloutEnd {
  bool complete = false;  // the whole collection is done
  std::string out_of;     // the budget that ended it; may be empty
  // The models of device that the items which are left belong to, where that ended it; else empty.
  std::vector<std::string> left_to;
};

// `drain` and `stop` may be null. Throws the error that broke the store, or the latest one when there were
// only errors.
RolloutEnd RunRollout(Store& store, Environment& environment, const RolloutSources& sources,
                      const RolloutOptions& options, const RolloutHooks& hooks, const CancelToken* drain,
                      const CancelToken* stop);

}  // namespace kevin
