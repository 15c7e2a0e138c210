#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "agent/attribution/attribution.h"
#include "agent/attribution/shaping.h"
#include "agent/events.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/process/machine.h"
#include "tools/commands.h"
#include "tools/record_options.h"
#include "trajectories/engine.h"

namespace kevin {
namespace {

struct AttributeOptions {
  SchemeOptions scheme;
  std::string database = "kevin.db";
  std::vector<std::string> runs;
  std::string name;  // empty: the scheme's
  bool json = false;
  AcceptedVerdicts accept;
};

constexpr const char* kAttributeExamples = R"(Examples:
  kevin attribute                                    scheme kevin for every run in kevin.db
  kevin attribute --scheme trloo --run latest        another scheme, for the last run alone
  kevin attribute --scheme kevin --gamma 0.8 --name kevin-0.8
                                                     one of your own, kept under a name of its own
  sqlite3 kevin.db "SELECT * FROM attributed_turns WHERE scheme = 'kevin' ORDER BY advantage DESC LIMIT 5"
                                                     what was kept

A scheme applied again to the same runs takes the place of its earlier result; rewards stay as they are.)";

std::vector<TurnAttributionRecord> ToRecords(const Figures& figures, const Attribution& attribution) {
  std::vector<TurnAttributionRecord> records;
  records.reserve(attribution.turns.size());
  for (size_t e = 0; e < figures.episodes.size(); ++e) {
    const EpisodeFigures& episode = figures.episodes[e];
    for (size_t i = episode.first_turn; i < episode.first_turn + episode.turn_count; ++i) {
      if (figures.turns[i].turn == 0) continue;
      const TurnAttribution& t = attribution.turns[records.size()];
      records.push_back({e, figures.turns[i].turn, t.score.score, t.score.se, t.value, t.advantage});
    }
  }
  return records;
}

struct Spread {
  double mean = 0, low = 0, high = 0;
};

template <typename Get>
Spread SpreadOf(const std::vector<TurnAttribution>& turns, const Get& get) {
  Spread spread{0, get(turns.front()), get(turns.front())};
  for (const TurnAttribution& turn : turns) {
    spread.mean += get(turn) / static_cast<double>(turns.size());
    spread.low = std::min(spread.low, get(turn)), spread.high = std::max(spread.high, get(turn));
  }
  return spread;
}

std::string SpreadText(const Spread& s) {
  return fmt::format("mean {:.3f}, from {:.3f} to {:.3f}", s.mean, s.low, s.high);
}

struct Kept {
  std::string id, name;
  Unfinished unfinished;  // that were left out
  size_t episodes = 0, runs = 0;
  double seconds = 0;
};

void PrintAttribution(const Scheme& scheme, const Attribution& attribution, const Kept& kept,
                      const AttributeOptions& options) {
  const Spread scores = SpreadOf(attribution.turns, [](const auto& t) { return t.score.score; });
  const Spread returns = SpreadOf(attribution.turns, [](const auto& t) { return t.value; });
  const Spread advantages = SpreadOf(attribution.turns, [](const auto& t) { return t.advantage; });
  if (options.json) {
    const auto json = [](const Spread& s) {
      return Json{{"mean", s.mean}, {"low", s.low}, {"high", s.high}};
    };
    Json event = {{"event", "attribution"}, {"attribution", kept.id}, {"scheme", kept.name}};
    event["parameters"] = SchemeJson(scheme);
    event["database"] = options.database;
    event["runs"] = kept.runs, event["episodes"] = kept.episodes, event["turns"] = attribution.turns.size();
    event["groups"] = attribution.groups, event["flat_groups"] = attribution.flat_groups;
    event["score"] = json(scores), event["return"] = json(returns), event["advantage"] = json(advantages);
    event["unfinished"] = kept.unfinished;
    event["seconds"] = kept.seconds;
    Print(stdout, ToLine(event));
    return;
  }
  PrintFormat(stdout, "scheme      {}: {}\n", kept.name, SchemeJson(scheme).dump());
  PrintFormat(stdout, "turns       {} of {} in {}\n", attribution.turns.size(),
              Counted(kept.episodes, "episode"), Counted(kept.runs, "run"));
  PrintFormat(stdout, "score       {}\nreturn      {}\nadvantage   {}\n", SpreadText(scores),
              SpreadText(returns), SpreadText(advantages));
  PrintFormat(stdout,
              "groups      {}, of which {} without a difference beyond the measurement error (advantage 0)\n",
              attribution.groups, attribution.flat_groups);
  PrintFormat(stdout, "kept        attribution {} in {}, {:.1f} s\n", kept.id,
              WithoutPassword(options.database), kept.seconds);
}

int RunAttribute(const AttributeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Scheme scheme = SchemeFrom(options.scheme);
  Store store = Store::Open(options.database, OpenMode::kWrite);
  const std::vector<RunFigures> all = store.ListRuns();
  std::vector<std::string> runs;
  for (const std::string& prefix : options.runs) runs.push_back(FindRunId(all, prefix, options.database));
  Figures figures = store.LoadFigures(runs);
  const std::string left_out =
      LeftOutText(LeaveOutDoubtful(LeaveOut::kEpisodes, options.accept, &figures), {options.database});
  const Unfinished left = NeedsLaterTurns(scheme) ? LeaveOutUnfinished(&figures) : Unfinished{};
  const std::string unfinished = UnfinishedText(left);
  if (runs.empty()) {
    for (const RunFigures& run : all) runs.push_back(run.id);
  }
  const Attribution attribution = Attribute(scheme, ToAttributed(figures, scheme.score, store));
  if (attribution.turns.empty()) {
    throw Error(ExitCode::kBadRequest, options.database + ": there are no turns to attribute",
                !left_out.empty()     ? left_out
                : !unfinished.empty() ? unfinished
                                      : "kevin show lists the episodes; kevin run makes some");
  }
  if (!unfinished.empty()) PrintFormat(stderr, "left out    {}\n", unfinished);
  if (!left_out.empty()) PrintFormat(stderr, "left out    {}\n", left_out);
  AttributionRecord record;
  record.scheme = options.name.empty() ? scheme.name : options.name;
  record.parameters = SchemeJson(scheme).dump();
  record.runs = runs;
  record.groups = attribution.groups, record.flat_groups = attribution.flat_groups;
  std::vector<std::string> episodes;
  for (const EpisodeFigures& e : figures.episodes) episodes.push_back(e.id);
  const std::string id = store.SaveAttribution(record, episodes, ToRecords(figures, attribution));
  const double seconds = SecondsSince(start);
  PrintAttribution(scheme, attribution, {id, record.scheme, left, episodes.size(), runs.size(), seconds},
                   options);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddAttributeCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<AttributeOptions>();
  CLI::App* command =
      app.add_subcommand("attribute", "Share out the rewards over turns, and keep the result");
  command->footer(kAttributeExamples);
  AddSchemeOptions(command, &options->scheme);
  command->add_option("--name", options->name, "Keep it under this name (default: the scheme's)");
  command->add_option("--db", options->database, "The database")->capture_default_str();
  command
      ->add_option("--run", options->runs, "Only this run (may be repeated): id, unique beginning, or latest")
      ->allow_extra_args(false);
  AddAcceptedVerdicts(command, &options->accept);
  command->add_flag("--json", options->json, "One JSON object a line");
  command->callback([options, action] { *action = [options] { return RunAttribute(*options); }; });
}

}  // namespace kevin
