#pragma once
// One side of a report: a set of episodes (a run, a database, a policy), reduced to the numbers behind its
// metrics. Turn 0, the user's own kernel, is left out.
//
// The value of an episode is the confirmed speed-up of its winner, and 0 without a correct kernel. Where
// nothing was confirmed (the episode was killed, or still runs) it is the best measurement of its turns,
// which is biased upwards; such episodes are counted.

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trajectories/figures.h"

namespace kevin {

inline constexpr std::array<double, 7> kFastThresholds = {0, 0.5, 0.8, 1, 1.2, 1.5, 2};
inline constexpr size_t kTurnPowers = 7;  // turns 1, 2, 4, ... 64
inline constexpr int kCurveTurns = 64;    // of the curve by turn

struct SideEpisode {
  double value = 0, log_se = 0;
  bool is_confirmed = false;
  int turns = 0, compiled = 0, correct = 0;
  // Best measurement of the first 1, 2, 4, ... turns; 0: none correct; -1: the episode has fewer turns.
  std::array<float, kTurnPowers> best_of_first{};
  double seconds = 0, device_s = 0;  // wall time; GPU held
  double prompt_tokens = 0, completion_tokens = 0;
  double cost_usd = 0;         // NaN: unknown for some request
  size_t figures_episode = 0;  // index into Figures::episodes
};

struct SideProblem {
  std::string id, name, level;  // "level1/19", "ReLU", "level1"
  std::vector<std::string> families;
  std::vector<SideEpisode> episodes;
};

// At turn t, averaged over problems (each problem the mean of its episodes). The first row of figures is of
// the turn itself, over the episodes that have it. The second is cumulative: an episode that ended earlier
// keeps its last value, so that the curve never falls because episodes end.
struct CurvePoint {
  int turn = 0;
  int64_t episodes = 0;                         // that have this turn
  double compiled = 0, correct = 0, fast1 = 0;  // of the turn itself, shares
  double solved_so_far = 0, best_so_far = 0;    // by the turns up to it; failures count 0
};

struct TimeSplit {
  double generate_s = 0, compile_s = 0, verify_s = 0, measure_s = 0, wait_s = 0, overhead_s = 0;
  double Total() const { return generate_s + compile_s + verify_s + measure_s + wait_s + overhead_s; }
};

struct Side {
  std::string name;
  std::vector<SideProblem> problems;  // with episodes, by id
  // Episodes, by the rules that judge them (Workload::rules). With several, every figure mixes verdicts that do not compare.
  std::map<std::string, int64_t> rules;
  std::vector<CurvePoint> by_turn;
  std::array<int64_t, 7> outcomes{};               // turns, by OutcomeKind
  std::array<int64_t, kReplyForms> reply_forms{};  // turns, by ReplyForm
  TimeSplit time;
  int64_t episodes = 0, turns = 0, cached = 0, cut_off = 0;
  int64_t unconfirmed = 0, unfinished = 0;  // episodes: correct but not confirmed; not done
  int64_t requests = 0, unknown_costs = 0;  // to servers; those of unknown cost
  double cost_usd = 0;                      // of the requests of known cost
  bool has_tokens = false, has_device = false;
};

// US dollars per million tokens.
struct TokenPrice {
  double prompt = 0, completion = 0;
};

// `episodes`: indices into Figures::episodes. Costs are those stored with the requests or, with `price`, the
// tokens at that price.
Side MakeSide(const std::string& name, const Figures& figures, const std::vector<size_t>& episodes,
              const std::optional<TokenPrice>& price = {});

// Orders numbers by value: "level1/19" before "level1/100".
bool ProblemIdLess(const std::string& a, const std::string& b);

}  // namespace kevin
