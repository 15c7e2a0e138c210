#pragma once
// What a collection asks for, and its single work items, as the JSON that the queue keeps.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "env/workload.h"

namespace kevin {

struct CollectionSpec {
  struct Task {
    std::string problem, problem_hash;
  };
  std::vector<Task> tasks;
  std::vector<std::string> policies;
  int episodes = 1, turns = 8;
  uint64_t seed = 0;
  std::string kind;   // of the candidates' device: "cpp" or "cuda"
  Workload workload;  // size empty: the environment's default
  std::string note;
  std::string purpose;  // of what it is a part: "step 12 of training 01K..."; usually empty
  // How models are asked, for those policies that are models; no part of KeyOf, so that the same request with
  // other options is noticed rather than begun beside the first one.
  std::string model_options = "{}";  // JSON object: the options that were given
  struct Window {                    // what came of them and of what the model or its server takes
    int max_tokens = 0;
    int64_t prompt_tokens = 0;
  };
  std::map<std::string, Window> windows;  // by policy
};

// One episode of it.
struct EpisodeSpec {
  std::string problem, problem_hash, policy;
  int number = 0;  // of this problem and policy, from 0
  uint64_t seed = 0;
  int turns = 0;
};

std::string ToJson(const CollectionSpec& spec);
CollectionSpec CollectionFromJson(const std::string& json);

// Equal requests, equal keys: a hash of ToJson without what is said of models.
std::string KeyOf(const CollectionSpec& spec);

// All episodes: the first of every problem and policy, then the second, and so on, so that a collection that
// is broken off has something of everything. Each has a seed of its own, which follows from the collection's
// and from what the episode is about.
std::vector<std::string> EpisodesOf(const CollectionSpec& spec);
EpisodeSpec EpisodeFromJson(const std::string& json);

}  // namespace kevin
