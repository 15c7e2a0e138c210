#pragma once
// What one turn is worth by itself. Pure arithmetic; any thread.
//
//   linear      S = format f + compiled c + correct k + k (speedup min(s, cap) + log2 log2(min(s, cap))
//                   + faster [s > margin]) + wrong (1 - k)
//               f, c, k are 1 where the reply held a source, it compiled, its answers were right; s is the
//               speed-up. The names are ScoreRule's weights. Known settings:
//     kevin      S = 0.3 k + s k, no cap. Kevin, arXiv 2507.11948, section 3.2.
//     dr-kernel  S = k + k min(s, 3). Dr. Kernel, arXiv 2602.05885, without its coverage term, for which
//     there
//                is no profile here.
//     shaped     S = 0.1 f + 0.1 c + 0.3 k + s k. Rewards for getting further; Kevin, section 3.2, tried such
//                rewards and left them, because a policy learns to stop at the rewarded step.
//     correct    S = k. The outcome alone.
//   milestones  S = -1 if wrong or worse, 1 if right, 2 if also more than 5 % faster than eager, 3 if also
//   more
//               than 5 % faster than eager and than the compiled baseline. CUDA Agent, arXiv 2602.24286.
//               Without a compiled baseline the third step is `strong` times eager, and 3 is never given
//               where `strong` is 0.
//
// The standard error of a score follows from that of log(s) to first order: dS/dlog(s) times log_se. A score
// that a cap or a step holds fast has none.

#include <string>

namespace kevin {

struct ScoreRule {
  enum class Kind { kLinear, kMilestones };
  Kind kind = Kind::kLinear;
  double format = 0, compiled = 0, correct = 0.3, speedup = 1, log2_speedup = 0, faster = 0, wrong = 0;
  double cap = 0;        // of the speed-up; 0: none
  double margin = 1.05;  // a speed-up above this is "faster"
  double strong = 0;     // milestones without a compiled baseline
};

// One turn's verdict. NaN where unknown.
struct TurnFacts {
  bool has_source = false, compiled = false, correct = false;
  double speedup = 0;           // against eager; only read where correct
  double log_se = 0;            // of log(speedup); NaN counts as 0
  double speedup_compiled = 0;  // against the compiled baseline; 0 or NaN: there is none
};

struct Scored {
  double score = 0, se = 0;  // se: standard error
};

Scored ScoreOf(const ScoreRule& rule, const TurnFacts& turn);

// "kevin", "dr-kernel", "shaped", "correct", "milestones"; false for any other name.
bool FindScoreRule(const std::string& name, ScoreRule* rule);

}  // namespace kevin
