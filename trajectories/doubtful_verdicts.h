#pragma once
// Verdicts that nothing is learnt from and no report counts, for two reasons. Of both, `kevin db rejudge` evaluates the
// candidate again.
//
// Older rules: the rules of verdict and clock have a version (kRulesVersion, env/outcome.h). A verdict from before
// kSecurityRulesVersion may come from a kernel that only seemed correct or fast. Left out are the measured ones. The
// other older verdicts of the same runs go with them: otherwise only the failures of a run would stay. They count again
// once no measured verdict of the run is old, because no rule that was too lenient gave a kernel its failure.
//
// A shared GPU: another process computed there during the measurement that stands (shared_gpu). Left out are the
// measured ones; failures do not depend on a time.

#include <cstdint>
#include <string>
#include <vector>

#include "trajectories/figures.h"
#include "trajectories/records.h"

namespace kevin {

bool IsOfOlderRules(int rules_version);
bool IsDoubtful(const EvaluationRecord& evaluation);

// Doubtful verdicts that are kept all the same.
struct AcceptedVerdicts {
  bool old = false;         // under older rules
  bool shared_gpu = false;  // timed beside another process
};

struct LeftOutVerdicts {
  int64_t old = 0, shared_gpu = 0;  // verdicts, by reason
  int64_t episodes = 0;             // of which nothing stays
  LeftOutVerdicts& operator+=(const LeftOutVerdicts& more);
};

enum class LeaveOut {
  kEpisodes,  // an episode with such a verdict, whole: what a turn earned depends on the other turns
  kTurns      // only the turns; an episode without a turn goes too
};

// Takes them out of `figures`. A doubtful confirmation is no longer its episode's best_speedup. Turn 0 is never taken
// out by itself. Pure.
LeftOutVerdicts LeaveOutDoubtful(LeaveOut what, const AcceptedVerdicts& accept, Figures* figures);

// "12 verdicts were left out: ... (kevin db rejudge FILE ...)"; empty for none. `databases`: where they are stored.
std::string LeftOutText(const LeftOutVerdicts& left_out, const std::vector<std::string>& databases);

// A candidate with such a verdict: one of the turns that it stands for.
struct DoubtfulVerdict {
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
