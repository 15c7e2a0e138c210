#pragma once
// `--compat kernelbench`: KernelBench's own verdict (env/python/kernelbench_judge.h) beside Kevin's on the same candidates. Each
// disagreement is a row with its reason.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/python/kernelbench_judge.h"

namespace kevin {

// What the two say of one candidate. `event`: of `kevin bench --json`.
struct CompatRow {
  std::string name, problem;
  std::string kevin, kernelbench;  // "wrong", "correct 1.2x (1.1x to 1.3x)"; "correct 1.31x", "incorrect"
  std::string reason;              // why they disagree; empty: they agree
};

// They agree when both call it correct or both do not, and, of a correct one, KernelBench's ratio lies in Kevin's interval, or
// both say faster, or neither does: KernelBench by its ratio, Kevin where the whole interval lies above 1. The reason names the
// rule that makes the difference, or the shapes where they differ. Pure.
CompatRow Compare(const nlohmann::ordered_json& event, const KernelBenchVerdict& verdict);

// The key of KernelBench's verdict: that of Kevin's, and which form of the problem it was judged by. `own_file`: the text of
// KernelBench's file; empty: Kevin's Python form.
std::string CompatKey(const std::string& evaluation_key, const std::string& own_file);

// kevin_compat.jsonl in the folder of results: one line a candidate, {"name", "key" (CompatKey), "verdict", "disagreement"}, so
// that a repeated call continues. One thread.
class CompatResults {
 public:
  // Throws Error(kBadRequest) when a line before the last cannot be read.
  explicit CompatResults(const std::filesystem::path& folder);
  const KernelBenchVerdict* Find(const std::string& name, const std::string& key) const;
  void Add(const std::string& name, const std::string& key, const KernelBenchVerdict& verdict,
           const CompatRow& row);

 private:
  std::filesystem::path path_;
  std::map<std::pair<std::string, std::string>, KernelBenchVerdict> known_;
};

// The table of disagreements, what differs from KernelBench on a GPU, and the counts.
std::string CompatText(const std::vector<CompatRow>& rows, const std::vector<KernelBenchVerdict>& verdicts);

// KernelBench's own problem file in a checkout: KernelBench/level1/19_*.py. Empty: there is none.
std::string OwnProblemFile(const std::filesystem::path& checkout, int level, int number);

}  // namespace kevin
