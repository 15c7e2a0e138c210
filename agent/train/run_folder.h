#pragma once
// What a training run keeps in its folder OUT, beyond the trainer's checkpoints and the step log: run.json,
// the best checkpoint, and turns to read.

#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kevin {

struct LearnBatch;  // agent/train/batches.h

// OUT/run.json: the state of a run that checkpoints do not hold, so that it can resume after any end, and the
// record of its evaluations. Keys:
//
//   id           of the run: a ULID
//   asked        what a run cannot change: algorithm, problems, samples, turns, seed
//   collections  by name ("step-12", "evaluation-10", "test"): the run in the database that holds the turns
//   evaluations  by step: suite, metric and value
//   best         step, metric, value and folder of the checkpoint chosen by the evaluations
//   chosen       by the names of collections: their problems, where these depend on earlier steps
//   solve_rates  by problem: the share of correct turns at its latest visit
//   test         suite, step, run, metrics, and when it began: the test suite is read once
//
// One rank writes it; the others read it to find collections. Any thread.
class RunFile {
 public:
  // Begins a run, or continues the one in `folder`. Throws Error(kBadRequest) when that one was asked for
  // with other values, or the file is damaged. `leads`: this process writes; the others wait for the file, and call `wait`
  // meanwhile, which may throw.
  RunFile(
      const std::filesystem::path& folder, bool leads, const nlohmann::json& asked,
      const std::function<void()>& wait = [] {});

  bool leads() const { return leads_; }
  std::string id() const;
  std::optional<std::string> Collection(const std::string& name);
  void SetCollection(const std::string& name, const std::string& run);
  // The problems of a collection, as rank 0 chose them: it calls `choose` once and writes the result, the other ranks
  // wait for it. nullopt: `is_over` came true meanwhile. Throws Error(kBroken) after 30 minutes.
  std::optional<std::vector<std::string>> Chosen(const std::string& name,
                                                 const std::function<std::vector<std::string>()>& choose,
                                                 const std::function<bool()>& is_over);
  nlohmann::json Get(const std::string& key) const;  // null: not there
  void Set(const std::string& key, const nlohmann::json& value);

 private:
  void Read();
  void Write() const;

  const std::filesystem::path path_;
  const bool leads_;
  mutable std::mutex mutex_;
  nlohmann::json content_;
};

// Makes OUT/best, a link to a folder beside it, point to a copy of `checkpoint`, in one step. The copy
// consists of hard links where the file system has them, and outlives OUT/checkpoints. Throws Error(kBroken)
// when the disk is full.
void KeepBest(const std::filesystem::path& output, const std::filesystem::path& checkpoint);

// OUT/rollouts/00000012.jsonl: turns that a step learnt from, to read; the database has all of them. At most
// 64, evenly over the batch, one object a line: step, episode, turn, problem, outcome, correct, speedup,
// score, return, advantage, tokens, stop_reason, model, reply (its first 4,000 bytes). Throws Error(kBroken)
// when the disk is full.
void WriteRollouts(const std::filesystem::path& folder, const LearnBatch& batch);

}  // namespace kevin
