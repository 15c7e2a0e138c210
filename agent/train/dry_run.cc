#include "agent/train/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "agent/events.h"
#include "agent/terminal.h"
#include "agent/text.h"

namespace kevin {
namespace {

constexpr std::array<double, 11> kEdges = {-2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5};
constexpr size_t kShownProblems = 40;
constexpr int kBarWidth = 40;
constexpr size_t kShownBytes = 1500;  // of a prompt and of a reply

struct OfProblem {
  std::set<std::string> episodes;
  int64_t turns = 0, correct = 0;
  double best = std::nan("");
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;
};

// Each turn once, in the order of the records. A pair's prompt is no turn that is learnt from.
std::set<size_t> TurnsOf(const Algorithm& algorithm, const Units& units) {
  std::set<size_t> all;
  for (const Unit& unit : units.units)
    all.insert(unit.turns.begin() + (algorithm.material == Material::kPairs), unit.turns.end());
  return all;
}

Json ProblemsJson(const std::map<std::string, OfProblem>& problems, bool with_advantages) {
  Json list = Json::array();
  for (const auto& [id, of] : problems) {
    Json one = {{"problem", id}, {"episodes", of.episodes.size()}, {"turns", of.turns}};
    one["correct_turns"] = of.correct, one["best_speedup"] = OrNull(of.best);
    one["least_advantage"] = with_advantages ? OrNull(of.lowest) : Json(nullptr);
    one["largest_advantage"] = with_advantages ? OrNull(of.highest) : Json(nullptr);
    list.push_back(std::move(one));
  }
  return list;
}

Json HistogramJson(const std::vector<double>& advantages) {
  std::array<int64_t, kEdges.size() + 1> counts{};
  for (const double a : advantages)
    ++counts[static_cast<size_t>(std::upper_bound(kEdges.begin(), kEdges.end(), a) - kEdges.begin())];
  Json bins = Json::array();
  for (size_t i = 0; i < counts.size(); ++i) {
    bins.push_back({{"from", i == 0 ? Json(nullptr) : Json(kEdges[i - 1])},
                    {"to", i == kEdges.size() ? Json(nullptr) : Json(kEdges[i])},
                    {"turns", counts[i]}});
  }
  return bins;
}

std::string Edge(const Json& edge) {
  return edge.is_null() ? "" : fmt::format("{:+.1f}", edge.get<double>());
}

std::string HistogramText(const Json& bins) {
  int64_t most = 1;
  for (const Json& bin : bins) most = std::max(most, bin.at("turns").get<int64_t>());
  std::string text = "advantages\n";
  for (const Json& bin : bins) {
    const auto count = bin.at("turns").get<int64_t>();
    const auto bar = static_cast<size_t>((count * kBarWidth + most - 1) / most);
    text += fmt::format("  {:>4} to {:>4} {:>7}  {}\n", Edge(bin.at("from")), Edge(bin.at("to")), count,
                        std::string(bar, '#'));
  }
  return text;
}

std::string Shown(const Json& value, const char* format) {
  return value.is_null() ? "-" : fmt::format(fmt::runtime(format), value.get<double>());
}

}  // namespace

Json DryRunEvent(const Algorithm& algorithm, const LearnTurns& turns, const Units& units,
                 const std::vector<std::string>& remarks) {
  const bool with_advantages = algorithm.material == Material::kRollouts;
  std::map<std::string, OfProblem> problems;
  std::vector<double> advantages;
  const std::set<size_t> chosen = TurnsOf(algorithm, units);
  for (const size_t i : chosen) {
    const LearnTurn& turn = turns.turns()[i];
    OfProblem& of = problems[turn.problem->id];
    of.episodes.insert(turn.episode->id), ++of.turns, of.correct += turn.correct;
    if (turn.correct) of.best = std::fmax(of.best, turn.speedup);
    of.lowest = std::min(of.lowest, turn.attribution.advantage);
    of.highest = std::max(of.highest, turn.attribution.advantage);
    advantages.push_back(turn.attribution.advantage);
  }
  Json event = {{"event", "dry_run"}, {"algorithm", algorithm.name}, {"units", units.units.size()}};
  event["dropped"] = units.dropped, event["turns"] = chosen.size(),
  event["batch"] = algorithm.train.units_per_step;
  event["steps_per_epoch"] =
      StepsPerEpoch(units.units.size(), static_cast<size_t>(algorithm.train.units_per_step));
  event["remarks"] = remarks;
  event["problems"] = ProblemsJson(problems, with_advantages);
  event["advantages"] = with_advantages ? HistogramJson(advantages) : Json(nullptr);
  return event;
}

std::string DryRunText(const Json& event) {
  std::string text = fmt::format("{:<24} {:>8} {:>6} {:>8} {:>8}  {}\n", "problem", "episodes", "turns",
                                 "correct", "best", "advantages");
  const Json& problems = event.at("problems");
  for (size_t i = 0; i < std::min(problems.size(), kShownProblems); ++i) {
    const Json& p = problems[i];
    const std::string range = p.at("least_advantage").is_null()
                                  ? "-"
                                  : fmt::format("{:+.2f} to {:+.2f}", p.at("least_advantage").get<double>(),
                                                p.at("largest_advantage").get<double>());
    text += fmt::format("{:<24} {:>8} {:>6} {:>8} {:>8}  {}\n", p.at("problem").get<std::string>(),
                        p.at("episodes").get<int64_t>(), p.at("turns").get<int64_t>(),
                        p.at("correct_turns").get<int64_t>(), Shown(p.at("best_speedup"), "{:.3g}x"), range);
  }
  if (problems.size() > kShownProblems)
    text += fmt::format("... and {} more\n", problems.size() - kShownProblems);
  if (!event.at("advantages").is_null()) text += HistogramText(event.at("advantages"));
  return text;
}

std::vector<Json> SampleEvents(const LearnBatch& batch, const ModelText& text) {
  std::vector<Json> events;
  const auto decoded = [&](const std::vector<int32_t>& ids) {
    return text.decode ? Json(text.decode(ids, false)) : Json(nullptr);
  };
  for (size_t i = 0; i < batch.turns.size(); ++i) {
    const BatchTurn& turn = batch.turns[i];
    const local::Sample& sample = batch.batch.samples.at(i);
    Json event = {{"event", "sample"}, {"index", i}, {"problem", turn.problem}, {"episode", turn.episode}};
    event["turn"] = turn.turn, event["model"] = OrNull(turn.model), event["outcome"] = turn.outcome;
    event["speedup"] = OrNull(turn.speedup), event["score"] = OrNull(turn.score),
    event["return"] = OrNull(turn.value);
    event["advantage"] = OrNull(static_cast<double>(sample.advantage));
    event["temperature"] = OrNull(static_cast<double>(sample.temperature)), event["masked"] = sample.masked;
    event["prompt_tokens"] = sample.prompt.size(), event["reply_tokens"] = sample.completion.size();
    event["prompt"] = decoded(sample.prompt);
    const Json reply = decoded(sample.completion);
    event["reply"] = reply.is_null() ? Json(turn.reply) : reply;
    events.push_back(std::move(event));
  }
  return events;
}

std::string SampleText(const Json& e, size_t shown_bytes) {
  std::string text = fmt::format(
      "--- sample {}: {}, episode {}, turn {}: {}{}, advantage {}{}; {} + {} tokens\n",
      e.at("index").get<size_t>() + 1, e.at("problem").get<std::string>(), e.at("episode").get<std::string>(),
      e.at("turn").get<int>(), e.at("outcome").get<std::string>(),
      e.at("speedup").is_null() ? "" : " " + Shown(e.at("speedup"), "{:.3g}x"),
      Shown(e.at("advantage"), "{:+.3f}"), e.at("masked").get<bool>() ? " (masked: cut off)" : "",
      e.at("prompt_tokens").get<size_t>(), e.at("reply_tokens").get<size_t>());
  if (!e.at("prompt").is_null()) {
    std::string prompt = e.at("prompt").get<std::string>();
    if (prompt.size() > shown_bytes) {
      size_t start = prompt.size() - shown_bytes;
      while (start < prompt.size() && (static_cast<unsigned char>(prompt[start]) & 0xC0) == 0x80) ++start;
      prompt = "..." + prompt.substr(start);
    }
    text += "[prompt]\n" + prompt + "\n";
  }
  return text + "[reply]\n" + Clip(e.at("reply").get<std::string>(), shown_bytes) + "\n";
}

void PrintDryRun(const std::string& heading, const Json& event, const std::vector<Json>& samples, bool json) {
  Print(stdout, json ? ToLine(event) : heading + DryRunText(event));
  for (const Json& sample : samples) Print(stdout, json ? ToLine(sample) : SampleText(sample, kShownBytes));
}

}  // namespace kevin
