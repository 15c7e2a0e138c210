#include "tools/report/sides.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "tools/record_options.h"

namespace kevin {
namespace {

std::string HowToSplit(const SideRequest& request) {
  if (!request.by.empty()) return request.by;
  if (!request.runs.empty()) return "run";
  return request.databases.size() > 1 ? "db" : "all";
}

std::string ModelOf(const Figures& figures, const EpisodeFigures& e) {
  if (e.turn_count == 0) return e.policy;
  // The last turn's: turn 0 is the user's own kernel.
  return figures.models[static_cast<size_t>(figures.turns[e.first_turn + e.turn_count - 1].model)];
}

std::string SideName(const std::string& by, const Figures& figures, const EpisodeFigures& e,
                     const std::string& database) {
  if (by == "run") return "run " + e.run;
  if (by == "policy") return e.policy;
  if (by == "model") return ModelOf(figures, e);
  if (by == "device") return e.device;
  if (by == "rules") return "rules " + e.workload.rules;
  return database;
}

// The runs that each database has of those asked for.
std::vector<std::vector<std::string>> FindRuns(const SideRequest& request,
                                               std::vector<ReportSource>& sources) {
  std::vector<std::vector<std::string>> runs(sources.size());
  for (const std::string& prefix : request.runs) {
    bool is_found = false;
    std::string problem, advice;
    for (size_t i = 0; i < sources.size(); ++i) {
      try {
        const std::string id = FindRunId(sources[i].store->ListRuns(), prefix, sources[i].database);
        if (std::find(runs[i].begin(), runs[i].end(), id) == runs[i].end()) runs[i].push_back(id);
        is_found = true;
      } catch (const Error& error) {
        problem = error.what(), advice = error.next_step();
      }
    }
    if (!is_found) throw Error(ExitCode::kBadRequest, problem, advice);
  }
  return runs;
}

// The flag for which the problem does not count in the episode's precision; null where it does.
const char* FlagAgainst(const ProblemFigures& problem, const EpisodeFigures& episode) {
  for (const char* flag : FlagsAgainst(PrecisionNamed(episode.workload.precision), episode.workload.size)) {
    if (std::find(problem.flags.begin(), problem.flags.end(), flag) != problem.flags.end()) return flag;
  }
  return nullptr;
}

// As its text says that was in force.
std::string WhyNot(Store& store, const ProblemFigures& problem, const char* flag) {
  const auto record = store.FindProblem(problem.hash);
  try {
    if (record) return ParseProblem(record->text, problem.id).flags.at(flag);
  } catch (const std::exception&) {  // a text that this version cannot read
  }
  return "its file says so";
}

void CountLeftOut(Store& store, const ProblemFigures& problem, const char* flag,
                  std::vector<LeftOutProblem>* left_out) {
  auto place = std::find_if(left_out->begin(), left_out->end(),
                            [&](const LeftOutProblem& one) { return one.id == problem.id; });
  if (place == left_out->end())
    place = left_out->insert(place, {problem.id, WhyNot(store, problem, flag), 0});
  ++place->episodes;
}

std::string WhyNothing(const std::vector<std::string>& names, const SideRequest& request,
                       const ChosenSides& chosen) {
  std::string why = fmt::format("there are no episodes to report on in {}", fmt::join(names, ", "));
  if (!request.rules.empty()) why += fmt::format(" that were judged by --rules {}", request.rules);
  for (const LeftOutProblem& one : chosen.left_out)
    why += fmt::format("; {} does not count: {}", one.id, one.reason);
  if (!chosen.doubtful_verdicts.empty()) why += "; " + chosen.doubtful_verdicts;
  return why;
}

}  // namespace

ChosenSides ChooseSides(const SideRequest& request) {
  ChosenSides chosen;
  std::vector<std::string> names;  // without passwords
  for (const std::string& database : request.databases) {
    auto store = std::make_unique<Store>(Store::Open(database, OpenMode::kRead));
    names.push_back(store->path().string());
    chosen.sources.push_back({names.back(), std::move(store), {}});
  }
  const auto runs = FindRuns(request, chosen.sources);
  const std::string by = HowToSplit(request);
  LeftOutVerdicts doubtful_verdicts;
  for (size_t s = 0; s < chosen.sources.size(); ++s) {
    if (!request.runs.empty() && runs[s].empty()) continue;
    ReportSource& source = chosen.sources[s];
    source.figures = source.store->LoadFigures(runs[s]);
    doubtful_verdicts += LeaveOutDoubtful(LeaveOut::kEpisodes, request.accept, &source.figures);
    std::map<std::string, std::vector<size_t>> by_name;
    std::vector<std::string> order;
    for (size_t e = 0; e < source.figures.episodes.size(); ++e) {
      const EpisodeFigures& episode = source.figures.episodes[e];
      const ProblemFigures& problem = source.figures.problems[static_cast<size_t>(episode.problem)];
      if (!problem.id.starts_with(request.problems)) continue;
      if (!request.rules.empty() && episode.workload.rules != request.rules) continue;
      if (const char* flag = FlagAgainst(problem, episode); flag && !request.inadmissible) {
        CountLeftOut(*source.store, problem, flag, &chosen.left_out);
        continue;
      }
      const std::string name = SideName(by, source.figures, episode, source.database);
      if (by_name[name].empty()) order.push_back(name);
      by_name[name].push_back(e);
    }
    for (const std::string& name : order) {
      const bool is_ambiguous = chosen.sources.size() > 1 && by != "db" && by != "all";
      chosen.sides.push_back(MakeSide(is_ambiguous ? name + " (" + source.database + ")" : name,
                                      source.figures, by_name[name], request.price));
      chosen.source_of.push_back(s);
    }
  }
  chosen.doubtful_verdicts = LeftOutText(doubtful_verdicts, names);
  if (chosen.sides.empty()) {
    throw Error(ExitCode::kBadRequest, WhyNothing(names, request, chosen),
                "kevin show lists what a database has; kevin run makes an episode");
  }
  return chosen;
}

}  // namespace kevin
