#pragma once
// A collection at one problem with an environment and a policy that are fakes.

#include <set>
#include <string>
#include <vector>

#include "agent/records.h"
#include "agent/rollout/rollout.h"
#include "env/problem/problem.h"
#include "tests/support/fakes.h"
#include "trajectories/database.h"

namespace kevin {

// A collection of `episodes` episodes at one problem by a policy that answers any number of them.
struct RolloutFixture {
  testing::TempFolder folder;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  Problem problem = testing::ReluProblem();
  testing::FakeEnvironment environment;
  testing::SteadyPolicy policy;
  Policy* answers = &policy;
  RolloutSources sources;
  RolloutOptions options;
  RolloutHooks hooks;
  CollectionSpec spec;
  CancelToken drain{false}, stop{false};
  std::vector<std::string> faults;
  std::set<std::string> begun;
  int resumed = 0, turns = 0, ended = 0;

  explicit RolloutFixture(int episodes = 4) {
    spec.tasks = {{problem.id, problem.content_hash}};
    spec.policies = {"steady"};
    spec.episodes = episodes;
    spec.turns = 4;
    spec.kind = "cpp";
    sources.problem = [this](const EpisodeSpec&) -> const Problem& { return problem; };
    sources.policy = [this](const std::string&) -> Policy& { return *answers; };
    options.episode.output = folder.path() / "out";
    options.parallel = 3;
    options.lease_s = 30;
    options.rest_s = 0.02;
    hooks.on_begin = [this](const EpisodeRecord& episode, const EpisodeSpec&, bool again) {
      begun.insert(episode.id);
      resumed += again ? 1 : 0;
    };
    hooks.on_turn = [this](const TurnRecord&, const EpisodeRecord&) { ++turns; };
    hooks.on_episode = [this](const EpisodeRecord&) { ++ended; };
    hooks.on_fault = [this](const EpisodeSpec&, const std::string& error, bool parked) {
      faults.push_back((parked ? "parked: " : "") + error);
    };
  }

  RolloutEnd Run() {
    const auto opened =
        WorkQueue(store).Open(KeyOf(spec), ToJson(spec), EpisodesOf(spec), {ToRecord(problem)}, {}, false);
    options.collection = opened.collection;
    options.worker_run = opened.worker_run;
    return RunRollout(store, environment, sources, options, hooks, &drain, &stop);
  }
  QueueCounts Counts() { return WorkQueue(store).Count(options.collection); }
  int64_t Query(const char* sql) {
    return Database(folder.path() / "kevin.db", Database::Access::kReadOnly, 1000).QueryInteger(sql);
  }
};

}  // namespace kevin
