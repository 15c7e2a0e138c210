#pragma once
// What `kevin bench --kernelbench` has judged: kevin_results.jsonl, from which a run that was broken off continues, and
// eval_results.json in KernelBench's form for its own scripts. One thread.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "tools/kernelbench_candidates.h"

namespace kevin {

// The files of one folder of results:
//
//   kevin_results.jsonl          one JSON object a line, appended when a candidate is judged: `name`, `problem`,
//                                `level`, `number`, `sample`, `key` (Environment::EvaluationKey; two lines with equal name
//                                and key are one verdict), `evaluation` (the event of `kevin bench --json`), `result`
//   eval_results.json            KernelBench's: problem number to a list of {sample_id, compiled, correctness, metadata,
//                                runtime, runtime_stats}. Results of several levels: eval_results_level_1.json, ...
//
// Times in eval_results.json are in milliseconds of a call, of the fixed pairs; -1 where nothing was timed. Everything of
// ours is in metadata.kevin. A last line that was cut off is dropped. Files of others are never replaced.
class KernelBenchResults {
 public:
  // Makes the folder if needed. Throws Error(kBadRequest) when it cannot be written, when eval_results.json is not
  // from here, or when a line before the last cannot be read.
  explicit KernelBenchResults(const std::filesystem::path& folder);

  // The stored object of an earlier verdict; null: none.
  const nlohmann::ordered_json* Find(const std::string& name, const std::string& key) const;

  // Appends, flushes and writes eval_results.json anew. `event`: of `kevin bench --json`.
  void Add(const PublishedCandidate& candidate, const std::string& key, const Evaluation& evaluation,
           const nlohmann::ordered_json& event);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void Load();
  void WriteEvalResults(int level) const;
  std::filesystem::path EvalResultsPath(int level) const;

  std::filesystem::path folder_;
  std::vector<nlohmann::ordered_json> lines_;                 // in the order of the file
  std::map<std::pair<std::string, std::string>, size_t> at_;  // by name and key
  int only_level_ = 0;                                        // 0: none or several
};

// Whether a folder has eval_results*.json of another program, as a run of KernelBench does.
bool HasResultsOfOthers(const std::filesystem::path& folder);

// One entry of eval_results.json.
nlohmann::ordered_json EvalResultOf(const PublishedCandidate& candidate, const Evaluation& evaluation);

}  // namespace kevin
