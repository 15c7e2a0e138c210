#pragma once
// Verdicts under older rules. The rules of verdict and clock have a version (kRulesVersion, env/outcome.h). A verdict
// from before kSecurityRulesVersion may come from a kernel that only seemed correct or fast: training, reports and
// exports leave it out, and `kevin db rejudge` evaluates its candidate again.
//
// Left out are the measured verdicts under older rules. The other older verdicts of the same runs go with them:
// otherwise only the failures of a run would stay. They count again once no measured verdict of the run is old,
// because no rule that was too lenient gave a kernel its failure.

#include <cstdint>
#include <string>
#include <vector>

#include "trajectories/figures.h"

namespace kevin {

struct LeftOutVerdicts {
  int64_t verdicts = 0, episodes = 0;  // episodes: of which nothing stays
  LeftOutVerdicts& operator+=(const LeftOutVerdicts& more);
};

enum class LeaveOut {
  kEpisodes,  // an episode with such a verdict, whole: what a turn earned depends on the other turns
  kTurns      // only the turns; an episode without a turn goes too
};

// Takes them out of `figures`. An older confirmation is no longer its episode's best_speedup. Turn 0 is never taken
// out by itself. Pure.
LeftOutVerdicts LeaveOutOldVerdicts(LeaveOut what, Figures* figures);

// "12 verdicts were left out: ... (kevin db rejudge FILE ...)"; empty for none. `databases`: where they are stored.
std::string LeftOutText(const LeftOutVerdicts& left_out, const std::vector<std::string>& databases);

// A candidate whose verdict is older than the security fix: one of the turns that it stands for.
struct OldVerdict {
  std::string episode;
  int turn = 0;
  std::string problem, problem_hash;
  std::string key;  // of the turn's own evaluation; one candidate in one question
  std::string kind, device;
  std::string outcome;     // as it stands now
  double speedup = 0;      // 0: not measured
  bool is_winner = false;  // the fastest turn of its episode
  int turns = 1;           // with this key
};

}  // namespace kevin
