#pragma once
// From databases and runs to the sides of a report, with their stores for the page.

#include <memory>
#include <string>
#include <vector>

#include "agent/report/side.h"
#include "trajectories/store.h"

namespace kevin {

struct SideRequest {
  std::vector<std::string> databases = {"kevin.db"};
  std::vector<std::string> runs;  // ids or unique beginnings, or "latest"; empty: all
  std::string by;                 // "run", "policy", "model", "device", "rules", "db", "all"; empty: as fits
  std::string problems;           // only ids that begin so; empty: all
  std::string rules;              // only episodes judged by these (Workload::rules); empty: all
  std::optional<TokenPrice> price;  // in place of the costs stored with requests
  bool inadmissible = false;        // also problems that were flagged so when the episode was made
  AcceptedVerdicts accept;          // of doubtful ones
};

struct ReportSource {
  std::string database;
  std::unique_ptr<Store> store;
  Figures figures;
};

// A problem that does not count, the reason, and the number of its episodes.
struct LeftOutProblem {
  std::string id, reason;
  int episodes = 0;
};

struct ChosenSides {
  std::vector<ReportSource> sources;
  std::vector<Side> sides;
  std::vector<size_t> source_of;  // of each side
  std::vector<LeftOutProblem> left_out;
  std::string doubtful_verdicts;  // that were left out, in a sentence; empty: none
};

// Reads all. Without `by`: named runs are a side each, else several databases are, else everything is one
// side. The same run in two databases is two sides. Throws Error(kBadRequest) when a run is in none of the
// databases, or when there are no episodes.
ChosenSides ChooseSides(const SideRequest& request);

}  // namespace kevin
