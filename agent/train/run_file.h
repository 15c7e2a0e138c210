#pragma once
// OUT/run.json: what a training run is beyond its checkpoints, so that it can go on after any end and so that
// others can see what it was judged by. Keys:
//
//   id           of the run: a ULID
//   asked        what a run cannot change on its way: algorithm, problems, samples, turns, seed
//   collections  by name ("step-12", "evaluation-10", "test"): the run in the database that holds the turns
//   evaluations  by step: suite, metric and value
//   best         step, metric, value and folder of the checkpoint that the evaluations chose
//   test         suite, step, run, metrics, and when it was begun: it is read once
//
// One rank writes it; the others read it again to learn of collections. Any thread.

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace kevin {

class RunFile {
 public:
  // Begins one, or goes on with what is there. Throws Error(kBadRequest) where that was asked for otherwise
  // or is damaged. `leads`: this process writes.
  RunFile(const std::filesystem::path& folder, bool leads, const nlohmann::json& asked);

  bool leads() const { return leads_; }
  std::string id() const;
  std::optional<std::string> Collection(const std::string& name);
  void SetCollection(const std::string& name, const std::string& run);
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

}  // namespace kevin
