#include "tools/run_choice.h"

#include <fmt/format.h>

#include "env/error.h"
#include "trajectories/identity.h"

namespace kevin {

std::string FindRunId(const std::vector<RunFigures>& runs, const std::string& prefix,
                      const std::string& database) {
  if (runs.empty())
    throw Error(ExitCode::kBadRequest, database + ": has no runs yet", "make one with: kevin run");
  if (prefix == "latest") return runs.back().id;
  const std::string wanted = NormalizeUlid(prefix);
  std::vector<std::string> found;
  for (const RunFigures& run : runs) {
    if (!wanted.empty() && run.id.starts_with(wanted)) found.push_back(run.id);
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    throw Error(ExitCode::kBadRequest, fmt::format("run '{}' is ambiguous in {}", prefix, database),
                fmt::format("give more characters; it fits {}", fmt::join(found, ", ")));
  }
  std::vector<std::string> latest;
  for (size_t i = runs.size(); i-- > 0 && latest.size() < 5;) latest.push_back(runs[i].id);
  throw Error(ExitCode::kBadRequest, fmt::format("run '{}' is not in {}", prefix, database),
              fmt::format("the latest there: {}", fmt::join(latest, ", ")));
}

}  // namespace kevin
