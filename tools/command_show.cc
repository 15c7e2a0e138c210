#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "agent/events.h"
#include "agent/journal.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/files.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/episode_text.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

struct ShowOptions {
  std::string episode;
  int turn = -1;  // none
  std::string database = "kevin.db";
  int limit = 20;
  bool json = false, source = false;
};

constexpr const char* kShowExamples = R"(Examples:
  kevin show                     the latest episodes
  kevin show 01K9J4              one episode, turn by turn; a unique beginning of its id is enough
  kevin show 01K9J4 3            everything of turn 3: prompt, reply, source, knobs, evaluation, feedback
  kevin show 01K9J4 3 --source   its source alone, byte for byte: > kernel.cpp
  kevin show --json --limit 0    every episode, one JSON object a line)";

void ShowList(Store& store, const ShowOptions& options) {
  const auto episodes = store.ListEpisodes(options.limit == 0 ? -1 : options.limit);
  if (options.json) {
    for (const EpisodeRecord& episode : episodes) Print(stdout, ToLine(EpisodeEvent(episode)));
  } else if (episodes.empty()) {
    PrintFormat(stdout, "{} has no episodes yet; make one with: kevin run --problem level1/19\n",
                options.database);
  } else {
    Print(stdout, EpisodeTable(episodes));
  }
}

void ShowEpisode(Store& store, const EpisodeRecord& episode, bool json) {
  const std::vector<TurnRecord> turns = CurrentTurns(store, episode.id);
  if (json) {
    for (const TurnRecord& turn : turns) Print(stdout, ToLine(TurnEvent(turn, episode)));
    Print(stdout, ToLine(EpisodeEvent(episode)));
    return;
  }
  Print(stdout, EpisodeSummary(episode));
  if (turns.empty()) return;
  Print(stdout, "\n" + TurnTable(turns));
  PrintFormat(stdout, "\nkevin show {} {} shows everything of that turn\n", ShellWord(episode.id),
              turns.back().turn);
  if (episode.best_turn) {
    PrintFormat(stdout, "kevin export {} --best -o kernel.{} takes the best kernel away\n",
                ShellWord(episode.id), FileName(FileEnding(episode.kind)));
  }
}

Json MessagesJson(const TurnRecord& turn) {
  Json messages = Json::array();
  for (const MessageRecord& m : turn.messages) messages.push_back({{"role", m.role}, {"content", m.content}});
  return messages;
}

// The turn's event, and beside its fixed fields everything else that is stored.
Json FullTurnJson(const TurnRecord& turn, const EpisodeRecord& episode,
                  const std::vector<EvaluationRecord>& evaluations) {
  Json event = TurnEvent(turn, episode);
  event["messages"] = MessagesJson(turn);
  event["reply"] = turn.reply;
  event["reasoning"] = turn.reasoning;
  event["source"] = turn.evaluation.source;
  event["feedback"] = turn.feedback;
  event["model"] = turn.model.name;
  event["stop_reason"] = turn.stop_reason;
  event["trials"] = Json::array();
  for (const KnobTrial& trial : turn.trials) {
    event["trials"].push_back(TrialEvent(trial, episode.problem));
    event["trials"].back().erase("event");
  }
  event["evaluations"] = Json::array();
  for (const EvaluationRecord& e : evaluations) {
    Json one = EvaluationEvent(e, episode.problem, turn.source_path, 0);
    one.erase("event");
    one["overhead_s"] = nullptr;
    one["id"] = e.id;
    one["purpose"] = e.purpose;
    one["key"] = e.key;
    one["log"] = e.log;
    one["samples"] = e.samples.size();
    event["evaluations"].push_back(std::move(one));
  }
  return event;
}

// A file or another program gets the bytes, a terminal their printable form.
void ShowSource(const TurnRecord& turn) {
  const std::string& source = turn.evaluation.source;
  if (source.empty()) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("turn {} has no source ({})", turn.turn, turn.evaluation.outcome),
                "leave --source out to see its reply");
  }
  if (isatty(STDOUT_FILENO) == 1) return Print(stdout, source);
  WriteAll(STDOUT_FILENO, source, "standard output");
}

void ShowTurn(Store& store, const EpisodeRecord& episode, int number, const ShowOptions& options) {
  const auto turn = store.LoadTurn(episode.id, number);
  if (!turn) {
    throw Error(ExitCode::kBadRequest, fmt::format("episode {} has no turn {}", episode.id, number),
                episode.turns == 0 ? "it has none yet" : fmt::format("it has turns 1 to {}", episode.turns));
  }
  if (options.source) return ShowSource(*turn);
  const auto evaluations = store.LoadEvaluations(episode.id, number);
  TurnRecord current = *turn;
  TakeCurrentVerdict(store, &current);
  Print(stdout, options.json ? ToLine(FullTurnJson(current, episode, evaluations))
                             : TurnDetails(*turn, evaluations, store.LoadRequests(episode.id, number)));
}

int RunShow(const ShowOptions& options) {
  Store store = Store::Open(options.database, OpenMode::kRead);
  if (options.episode.empty()) {
    ShowList(store, options);
    return static_cast<int>(ExitCode::kDone);
  }
  const EpisodeRecord episode = store.FindEpisode(options.episode);
  if (options.turn < 0) {
    ShowEpisode(store, episode, options.json);
  } else {
    ShowTurn(store, episode, options.turn, options);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddShowCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("show", "Show episodes and turns from the database");
  command->footer(kShowExamples);
  CLI::Option* episode =
      command->add_option("episode", options->episode, "An episode's id, or a unique beginning of it");
  command->add_option("turn", options->turn, "A turn of it; 0 is the kernel given with --from")
      ->check([](const std::string& text) {
        return WhyNotWhole(text).empty() ? "" : text + " is not a turn number: 0, 1, 2, ...";
      })
      ->needs(episode);
  command->add_option("--db", options->database, "The database")->capture_default_str();
  command->add_option("--limit", options->limit, "How many episodes to list; 0: all")
      ->check(WhyNotWhole)
      ->capture_default_str();
  command->add_flag("--source", options->source, "The source of the turn, byte for byte, and nothing else")
      ->needs("turn");
  command->add_flag("--json", options->json, "One JSON object a line");
  command->callback([options, action] { *action = [options] { return RunShow(*options); }; });
}

}  // namespace kevin
