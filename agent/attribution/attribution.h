#pragma once
// START HERE for attribution: how much each turn of each episode earned. A scheme has three parts:
//
//   score       the value of one turn by itself        ScoreOf
//   return      the credit of a turn: its own score    Returns
//               and those of later turns
//   advantage   a return compared with the others      Advantages
//               of its group
//
// Pure arithmetic on verdicts, without database or torch, so that stored records can be attributed again at
// any time. Any thread.
//
//   Attribution result = Attribute(*FindScheme("kevin"), episodes);
//   result.turns[i]     is the i-th turn of all episodes in their order

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kevin {

struct Figures;  // trajectories/figures.h

// --- Scores ---
//
// With f, c, k = 1 where the reply had a source, it compiled, it was correct, and s = the speed-up over
// eager:
//
//   linear       S = format f + compiled c + correct k + wrong (1 - k)
//                    + k (speedup min(s, cap) + log2 log2(min(s, cap)) + faster [s > margin])
//                The words are ScoreRule's weights. Known settings:
//     kevin      S = 0.3 k + s k, no cap. Kevin, arXiv 2507.11948, section 3.2.
//     dr-kernel  S = k + k min(s, 3). Dr. Kernel, arXiv 2602.05885, without its coverage term, which needs a
//                profile.
//     shaped     S = 0.1 f + 0.1 c + 0.3 k + s k. Rewards for partial progress. Kevin, section 3.2, tried and
//                dropped such rewards: a policy learns to stop at the rewarded step.
//     correct    S = k. The outcome alone.
//                and + tags t + similarity m + staged g + overlong o, terms of the text alone, off in all known
//                settings but overlong in dapo (agent/attribution/shaping.h); milestones has them too.
//   milestones   S = -1 if not correct, 1 if correct, 2 if also more than 5 % faster than eager. After CUDA
//                Agent, arXiv 2602.24286, without its third step, which needs a compiled baseline for every
//                turn.
//
// The standard error of a score follows from that of log(s) to first order: dS/dlog(s) times log_se. It is 0
// where a cap or a step makes the score constant.

struct ScoreRule {
  enum class Kind { kLinear, kMilestones };
  Kind kind = Kind::kLinear;
  double format = 0, compiled = 0, correct = 0.3, speedup = 1, log2_speedup = 0, faster = 0, wrong = 0;
  double tags = 0, similarity = 0, staged = 0, overlong = 0;  // of the text: shaping.h
  double overlong_cache = 0.2;                                // share of the length limit: shaping.h
  double cap = 0;                                             // of the speed-up; 0: none
  double margin = 1.05;                                       // a larger speed-up is "faster"
};

// The verdict of one turn. NaN where unknown.
struct TurnFacts {
  bool has_source = false, compiled = false, correct = false;
  double speedup = 0;  // over eager; only read where correct
  double log_se = 0;   // standard error of log(speedup); NaN counts as 0
  double tags = 0, similarity = 0,
         staged = 0;    // from 0 to 1; of the text (shaping.h), filled where they count
  double overlong = 0;  // from -1 to 0; likewise
};

struct Scored {
  double score = 0, se = 0;  // se: standard error
};

Scored ScoreOf(const ScoreRule& rule, const TurnFacts& turn);

// "kevin", "dr-kernel", "shaped", "correct", "milestones"; false for any other name.
bool FindScoreRule(const std::string& name, ScoreRule* rule);

// --- Returns ---
//
// With the scores r_1 ... r_T of an episode's turns and the discount g:
//
//   sum      R_t = sum over i >= t of g^(i-t) r_i   Kevin, section 4.3 (g = 0.4); g = 1 in Dr. Kernel
//   max      R_t = max over i >= t of g^(i-t) r_i   Kevin, section 4.3 (best with g = 0.8 and few turns)
//   outcome  R_t = max over all i of r_i            Kevin, section 4.3: the episode's best for every turn
//   own      R_t = r_t                              Kevin, section 4.3: greedy; equals sum with g = 0
//
// The standard error of a sum is the root of the summed squares of the discounted errors; a maximum has the
// error of the score it comes from.

struct ReturnRule {
  enum class Kind { kSum, kMax, kOutcome, kOwn };
  Kind kind = Kind::kSum;
  double gamma = 0.4;  // from 0 to 1
};

// One return per turn of one episode, in the order of `turns`.
std::vector<Scored> Returns(const ReturnRule& rule, std::span<const Scored> turns);

// "sum", "max", "outcome", "own"; false for any other name.
bool FindReturnKind(const std::string& name, ReturnRule::Kind* kind);
const char* ReturnKindName(ReturnRule::Kind kind);

// --- Advantages ---
//
// With the n returns R_i of a group, their mean M and standard deviation S (of the population, divided by n):
//
//   name        formula                      group           source
//   group       A_i = (R_i - M) / S          task            Kevin, section 4 step 4 and equation 1
//   turn        A_i = (R_i - M) / S          task and turn   the baseline per refinement step of Kevin
//   turn-loo    A_i = n / (n - 1) (R_i - M)  task and turn   TRLOO, Dr. Kernel
//   group-loo   A_i = n / (n - 1) (R_i - M)  task            RLOO, arXiv 2402.14740
//   group-mean  A_i = R_i - M                task            Dr. GRPO, arXiv 2503.20783: dividing by S favours
//                                                            easy and hard tasks
//   turn-mean   A_i = R_i - M                task and turn
//
// "task" is all m episodes x n turns of a task; "task and turn" the turns of one number. n / (n - 1) (R_i -
// M) is R_i minus the mean of the other returns (leave-one-out).
//
// A group without a difference has advantage 0 throughout: one sample; S within rounding; or S within `noise`
// times the measurement error, the root mean square of the returns' standard errors. Such a group would only
// teach the noise of the clock. The term overlong makes no difference: a group without one but for it is flat, as
// DAPO's dynamic sampling leaves out prompts whose answers are equally correct (arXiv 2503.14476, equation 11).

struct AdvantageRule {
  enum class Kind { kGroup, kTurn, kTurnLeaveOneOut, kGroupLeaveOneOut, kGroupMean, kTurnMean };
  Kind kind = Kind::kGroup;
  double noise = 2;  // 0: every difference counts
};

// True for the groups by task and turn.
bool IsPerTurn(AdvantageRule::Kind kind);

struct GroupResult {
  std::vector<double> advantages;  // one per return
  bool flat = false;               // no difference
};
// `returns`: of one whole group.
GroupResult Advantages(const AdvantageRule& rule, std::span<const Scored> returns);

// "group", "turn", "turn-loo", "group-loo", "group-mean", "turn-mean"; false for any other name.
bool FindAdvantageKind(const std::string& name, AdvantageRule::Kind* kind);
const char* AdvantageKindName(AdvantageRule::Kind kind);

// --- Schemes ---
//
//   name        score       return           advantage
//   kevin       kevin       sum with 0.4     group
//   kevin-max   kevin       max with 0.8     group
//   trloo       dr-kernel   sum with 1       turn-loo
//   dr-grpo     kevin       sum with 0.4     group-mean
//   rloo        kevin       sum with 0.4     group-loo
//   milestones  milestones  own              group
//   outcome     kevin       outcome          group
//   dapo        kevin, with the weight 1 for overlong; sum with 0.4; group

struct Scheme {
  std::string name;
  ScoreRule score;
  ReturnRule returns;
  AdvantageRule advantage;
};

const std::vector<Scheme>& KnownSchemes();
std::optional<Scheme> FindScheme(const std::string& name);

// Score, return and advantage in full, for attributions.parameters.
nlohmann::ordered_json SchemeJson(const Scheme& scheme);

// --- Attribution ---

// The turns of one episode, in order, without turn 0.
struct AttributedEpisode {
  int task = 0;  // equal for episodes that are compared: same run, problem, policy and conditions
  std::vector<TurnFacts> turns;
};

struct TurnAttribution {
  Scored score;
  double value = 0;  // the return
  double advantage = 0;
};

struct Attribution {
  std::vector<TurnAttribution> turns;
  int64_t groups = 0, flat_groups = 0;
};

Attribution Attribute(const Scheme& scheme, std::span<const AttributedEpisode> episodes);

// The episodes of a database, one per episode of `figures` in their order. Episodes belong to one task when
// run, problem text, policy, kind, size, inputs, precision and TF32 are equal. The device is not compared, so
// that the GPUs of a machine form one task.
std::vector<AttributedEpisode> ToAttributed(const Figures& figures);

// Whether a turn's return depends on later turns, so that it is not known before the episode is done.
bool NeedsLaterTurns(const Scheme& scheme);

// Takes episodes that are not "done" out of `figures`; their count by state. A return over the turns that are there
// would value the missing ones at 0.
using Unfinished = std::map<std::string, int64_t>;
Unfinished LeaveOutUnfinished(Figures* figures);
// "3 unfinished episodes were left out (1 failed, 2 running): ..."; empty for none.
std::string UnfinishedText(const Unfinished& unfinished);

}  // namespace kevin
