#pragma once
// One SQLite database into another. Ids are ULIDs and contents are named by hash, so that what is there
// already is recognised and nothing is doubled; importing the same file again changes nothing.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trajectories/database.h"

namespace kevin {

struct MergeResult {
  int64_t runs = 0, episodes = 0, turns = 0, evaluations = 0;  // that are new
  int64_t continued = 0;  // episodes that were here and have later turns or a later end there
  // Episodes that went on differently in both files; they stay as they are here.
  std::vector<std::string> conflicts;
};

// Copies runs, problems, episodes, turns, candidates, evaluations, samples and what belongs to them from
// `source` (a database of this format or an older one; never written) into `into`, in one transaction. Queued
// work and attributions, which can be made anew, stay behind.
MergeResult MergeInto(Database& into, const std::filesystem::path& source);

}  // namespace kevin
