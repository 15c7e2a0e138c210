#pragma once
// Which runs of which databases a command is about: what `report`, `attribute` and `export` share.

#include <string>
#include <vector>

#include "trajectories/store.h"

namespace kevin {

// The full id of the run that `prefix`, its id or a unique beginning of it, names in `runs`. "latest" names
// the last one. Unknown or ambiguous: Error(kBadRequest) that names the nearest.
std::string FindRunId(const std::vector<RunFigures>& runs, const std::string& prefix,
                      const std::string& database);

}  // namespace kevin
