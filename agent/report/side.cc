#include "agent/report/side.h"

#include <algorithm>
#include <span>

namespace kevin {
namespace {

std::span<const TurnFigures> TurnsOf(const Figures& figures, const EpisodeFigures& episode) {
  std::span<const TurnFigures> turns(figures.turns.data() + episode.first_turn, episode.turn_count);
  while (!turns.empty() && turns.front().turn == 0) turns = turns.subspan(1);
  return turns;
}

double Speed(const TurnFigures& turn) { return turn.correct && !std::isnan(turn.speedup) ? turn.speedup : 0; }

SideEpisode Summarise(const EpisodeFigures& episode, std::span<const TurnFigures> turns) {
  SideEpisode e;
  double best = 0, best_log_se = 0;
  e.best_of_first.fill(-1);
  size_t power = 0;
  for (const TurnFigures& t : turns) {
    e.turns++, e.compiled += t.compiled, e.correct += t.correct;
    if (Speed(t) > best) best = Speed(t), best_log_se = std::isnan(t.log_se) ? 0 : t.log_se;
    if (!std::isnan(t.prompt_tokens)) e.prompt_tokens += t.prompt_tokens;
    if (!std::isnan(t.completion_tokens)) e.completion_tokens += t.completion_tokens;
    e.seconds += t.seconds;
    if (power < kTurnPowers && e.turns == 1 << power) e.best_of_first[power++] = static_cast<float>(best);
  }
  // Stopped at its goal (--until): the turns that it did not need would not have made it worse.
  for (; power < kTurnPowers && 1 << power <= episode.turns_asked && episode.state == "done"; ++power)
    e.best_of_first[power] = static_cast<float>(best);
  e.is_confirmed = episode.best_turn >= 0 && !std::isnan(episode.best_speedup);
  e.value = e.is_confirmed ? episode.best_speedup : best;
  e.log_se = e.is_confirmed ? (std::isnan(episode.best_log_se) ? 0 : episode.best_log_se) : best_log_se;
  e.seconds = std::max(e.seconds, episode.seconds);
  e.device_s = episode.device_s;
  return e;
}

// The curve by turn: sums within one problem first, so that each problem counts once.
struct CurveSums {
  int64_t begun = 0;  // episodes with a turn
  std::array<int64_t, kCurveTurns> episodes{};
  std::array<double, kCurveTurns> compiled{}, correct{}, fast1{}, solved{}, best{};

  void Add(std::span<const TurnFigures> turns) {
    if (turns.empty()) return;
    ++begun;
    double best_so_far = 0;
    for (size_t i = 0; i < kCurveTurns; ++i) {
      if (i < turns.size()) {
        const double speed = Speed(turns[i]);
        best_so_far = std::max(best_so_far, speed);
        episodes[i]++;
        compiled[i] += turns[i].compiled, correct[i] += turns[i].correct, fast1[i] += speed > 1;
      }
      solved[i] += best_so_far > 0, best[i] += best_so_far;
    }
  }
};

std::vector<CurvePoint> CurveOf(const std::vector<CurveSums>& problems) {
  std::vector<CurvePoint> curve;
  for (size_t i = 0; i < kCurveTurns; ++i) {
    CurvePoint point;
    point.turn = static_cast<int>(i) + 1;
    double at_turn = 0, begun = 0;  // problems
    for (const CurveSums& sums : problems) {
      if (sums.begun == 0) continue;
      const auto all = static_cast<double>(sums.begun);
      begun++, point.solved_so_far += sums.solved[i] / all, point.best_so_far += sums.best[i] / all;
      if (sums.episodes[i] == 0) continue;
      const auto n = static_cast<double>(sums.episodes[i]);
      at_turn++, point.episodes += sums.episodes[i];
      point.compiled += sums.compiled[i] / n, point.correct += sums.correct[i] / n;
      point.fast1 += sums.fast1[i] / n;
    }
    if (at_turn == 0) break;
    for (double* value : {&point.compiled, &point.correct, &point.fast1}) *value /= at_turn;
    for (double* value : {&point.solved_so_far, &point.best_so_far}) *value /= begun;
    curve.push_back(point);
  }
  return curve;
}

void AddTurns(std::span<const TurnFigures> turns, Side* side) {
  for (const TurnFigures& t : turns) {
    side->turns++, side->outcomes[static_cast<size_t>(t.outcome)]++;
    side->reply_forms[static_cast<size_t>(t.reply_form)]++;
    side->cached += t.cached, side->cut_off += t.cut_off;
    side->time.generate_s += t.generate_s, side->time.compile_s += t.compile_s;
    side->time.verify_s += t.verify_s, side->time.measure_s += t.measure_s;
    side->time.wait_s += t.wait_s, side->time.overhead_s += t.overhead_s;
    side->has_tokens |= !std::isnan(t.completion_tokens);
  }
}

// Adds the episode's cost to the side's; returns it, NaN when some of it is unknown.
double AddCost(const EpisodeFigures& episode, const SideEpisode& tokens,
               const std::optional<TokenPrice>& price, Side* side) {
  if (price) {
    const double cost =
        (tokens.prompt_tokens * price->prompt + tokens.completion_tokens * price->completion) / 1e6;
    side->cost_usd += cost;
    return cost;
  }
  side->requests += episode.requests, side->unknown_costs += episode.unknown_costs;
  side->cost_usd += episode.cost_usd;
  return episode.unknown_costs > 0 ? kNotKnown : episode.cost_usd;
}

// "level1/19" -> {"level1/", 19}; an id without a number at its end sorts after those with one.
std::pair<std::string, long> SplitId(const std::string& id) {
  const size_t digits = id.find_last_not_of("0123456789") + 1;
  if (digits >= id.size() || id.size() - digits > 9) return {id, -1};
  return {id.substr(0, digits), std::stol(id.substr(digits))};
}

}  // namespace

bool ProblemIdLess(const std::string& a, const std::string& b) { return SplitId(a) < SplitId(b); }

Side MakeSide(const std::string& name, const Figures& figures, const std::vector<size_t>& episodes,
              const std::optional<TokenPrice>& price) {
  Side side;
  side.name = name;
  std::map<std::string, size_t, decltype(&ProblemIdLess)> order(&ProblemIdLess);
  for (const size_t index : episodes) {
    const int problem = figures.episodes[index].problem;
    order.emplace(figures.problems[static_cast<size_t>(problem)].id, 0);
  }
  for (auto& [id, index] : order) {
    index = side.problems.size();
    side.problems.push_back({id, "", id.substr(0, id.find('/')), {}, {}});
  }
  std::vector<CurveSums> curves(side.problems.size());
  for (const size_t index : episodes) {
    const EpisodeFigures& episode = figures.episodes[index];
    const ProblemFigures& problem = figures.problems[static_cast<size_t>(episode.problem)];
    const size_t at = order.at(problem.id);
    side.problems[at].name = problem.name;  // of the latest text, where a problem was edited
    side.problems[at].families = problem.families;
    const auto turns = TurnsOf(figures, episode);
    SideEpisode summary = Summarise(episode, turns);
    summary.figures_episode = index;
    summary.cost_usd = AddCost(episode, summary, price, &side);
    side.unconfirmed += summary.value > 0 && !summary.is_confirmed;
    ++side.rules[episode.workload.rules];
    side.unfinished += episode.state != "done";
    side.has_device |= summary.device_s > 0;
    side.problems[at].episodes.push_back(summary);
    curves[at].Add(turns);
    AddTurns(turns, &side);
  }
  side.episodes = static_cast<int64_t>(episodes.size());
  side.by_turn = CurveOf(curves);
  return side;
}

}  // namespace kevin
