#pragma once
// One database into another, whichever engines they are on. Ids are ULIDs and contents are named by hash, so
// that what is there already is recognised and nothing is doubled; importing the same again changes nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "trajectories/database.h"

namespace kevin {

struct MergeResult {
  int64_t runs = 0, episodes = 0, turns = 0, evaluations = 0;  // that are new
  int64_t continued = 0;  // episodes that were here and have later turns or a later end there
  // Episodes that went on differently in both databases; they stay as they are here.
  std::vector<std::string> conflicts;
};

// Copies runs, problems, episodes, turns, candidates, evaluations, samples and what belongs to them from
// `source` (a database of this format or an older one; never written) into `into`, in one transaction. Queued
// work and attributions, which can be made anew, stay behind. Throws Error(kBadRequest) when rows of `source`
// refer to rows that it lacks.
MergeResult MergeInto(Database& into, Database& source);

}  // namespace kevin
