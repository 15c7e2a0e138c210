#include "trajectories/old_verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "env/outcome.h"
#include "trajectories/engine.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

bool IsOld(const TurnFigures& turn) { return turn.turn > 0 && turn.rules_version < kSecurityRulesVersion; }

// The runs with a measured verdict under older rules.
std::set<std::string> RunsInDoubt(const Figures& figures) {
  std::set<std::string> runs;
  for (const EpisodeFigures& e : figures.episodes) {
    for (size_t i = e.first_turn; i < e.first_turn + e.turn_count; ++i) {
      if (IsOld(figures.turns[i]) && figures.turns[i].correct) runs.insert(e.run);
    }
  }
  return runs;
}

void ForgetOldBest(EpisodeFigures* e) {
  if (e->best_turn < 0 || e->best_rules_version >= kSecurityRulesVersion) return;
  e->best_turn = -1;
  e->best_speedup = e->best_log_se = kNotKnown;
}

// Returns whether anything of the episode stays.
bool TakeOut(LeaveOut what, EpisodeFigures* e, std::vector<TurnFigures>* turns, LeftOutVerdicts* left_out) {
  const auto begin = turns->begin() + static_cast<std::ptrdiff_t>(e->first_turn);
  const auto end = begin + static_cast<std::ptrdiff_t>(e->turn_count);
  const auto old = std::count_if(begin, end, IsOld);
  if (old == 0) return true;
  left_out->verdicts += old;
  const auto kept = std::remove_if(begin, end, IsOld);
  e->turn_count = static_cast<size_t>(kept - begin);
  const bool has_turns = std::any_of(begin, kept, [](const TurnFigures& t) { return t.turn > 0; });
  return what == LeaveOut::kTurns && has_turns;
}

// Winners first, then what else was measured, the faster the earlier, then the failures.
bool ComesBefore(const OldVerdict& a, const OldVerdict& b) {
  const auto place = [](const OldVerdict& v) { return v.is_winner ? 0 : v.speedup > 0 ? 1 : 2; };
  if (place(a) != place(b)) return place(a) < place(b);
  return a.speedup > b.speedup;
}

// A turn with its verdict as it stands, whatever its age.
struct StandingVerdict {
  OldVerdict verdict;
  bool is_old = false;
};

std::vector<StandingVerdict> ReadStanding(Database& database) {
  Statement row = database.Prepare(
      "SELECT own.episode, own.turn, ep.problem, own.problem_hash, own.key, own.kind, own.device, e.outcome, "
      "CASE WHEN e.correct = 1 THEN e.speedup END, e.rules_version FROM evaluations own "
      "JOIN episodes ep ON ep.id = own.episode JOIN evaluations e ON e.id = coalesce(own.superseded_by, own.id) "
      "WHERE own.purpose IN ('turn', 'start') AND own.candidate IS NOT NULL ORDER BY own.episode, own.turn");
  std::vector<StandingVerdict> standing;
  while (row.Step()) {
    StandingVerdict s;
    OldVerdict& v = s.verdict;
    v.episode = row.Text(0), v.turn = static_cast<int>(row.Integer(1)), v.problem = row.Text(2);
    v.problem_hash = row.Text(3), v.key = row.Text(4), v.kind = row.Text(5), v.device = row.Text(6);
    v.outcome = row.Text(7), v.speedup = row.IsNull(8) ? 0 : row.Real(8);
    s.is_old = row.Integer(9) < kSecurityRulesVersion;
    standing.push_back(std::move(s));
  }
  return standing;
}

void MarkWinners(std::vector<StandingVerdict>* standing) {
  for (size_t first = 0, end = 0; first < standing->size(); first = end) {
    size_t best = first;
    for (end = first; end < standing->size(); ++end) {
      const OldVerdict& v = (*standing)[end].verdict;
      if (v.episode != (*standing)[first].verdict.episode) break;
      if (v.speedup > (*standing)[best].verdict.speedup) best = end;
    }
    (*standing)[best].verdict.is_winner = (*standing)[best].verdict.speedup > 0;
  }
}

}  // namespace

LeftOutVerdicts& LeftOutVerdicts::operator+=(const LeftOutVerdicts& more) {
  verdicts += more.verdicts, episodes += more.episodes;
  return *this;
}

LeftOutVerdicts LeaveOutOldVerdicts(LeaveOut what, Figures* figures) {
  const std::set<std::string> in_doubt = RunsInDoubt(*figures);
  LeftOutVerdicts left_out;
  std::erase_if(figures->episodes, [&](EpisodeFigures& e) {
    ForgetOldBest(&e);
    const bool stays = !in_doubt.contains(e.run) || TakeOut(what, &e, &figures->turns, &left_out);
    left_out.episodes += !stays;
    return !stays;
  });
  return left_out;
}

std::string LeftOutText(const LeftOutVerdicts& left_out, const std::vector<std::string>& databases) {
  if (left_out.verdicts == 0) return "";
  const std::string file = databases.size() == 1 ? WithoutPassword(databases.front()) : "FILE";
  return fmt::format(
      "{} verdict{} left out: given under rules before version {}, which false results could pass; kevin db rejudge {} "
      "evaluates them again; --accept-old-verdicts keeps them",
      left_out.verdicts, left_out.verdicts == 1 ? " was" : "s were", kSecurityRulesVersion, file);
}

std::vector<OldVerdict> Store::OldVerdicts() {
  const std::lock_guard lock(impl_->mutex);
  std::vector<StandingVerdict> standing = ReadStanding(impl_->database);
  MarkWinners(&standing);
  std::stable_sort(standing.begin(), standing.end(),
                   [](const auto& a, const auto& b) { return ComesBefore(a.verdict, b.verdict); });
  std::map<std::string, size_t> of_key;
  std::vector<OldVerdict> old;
  for (StandingVerdict& s : standing) {
    if (!s.is_old) continue;
    const auto [place, is_first] = of_key.try_emplace(s.verdict.key, old.size());
    if (is_first) {
      old.push_back(std::move(s.verdict));
    } else {
      ++old[place->second].turns;
    }
  }
  return old;
}

std::string Store::AppendRejudgement(const std::string& episode, int turn, const EvaluationRecord& evaluation,
                                     const std::string& key) {
  std::string id;
  impl_->Write([&] {
    Database& database = impl_->database;
    impl_->RequireEpisode(episode);
    id = InsertEvaluation(database, episode, turn, evaluation);
    // First what older verdicts had overridden.
    database
        .Prepare(
            "UPDATE evaluations SET superseded_by = ?1 WHERE id <> ?1 "
            "AND superseded_by IN (SELECT id FROM evaluations WHERE key = ?2)")
        .Bind(id, key)
        .Run();
    database.Prepare("UPDATE evaluations SET superseded_by = ?1 WHERE id <> ?1 AND key = ?2")
        .Bind(id, key)
        .Run();
  });
  return id;
}

std::vector<std::string> Store::EpisodesToConfirm() {
  const std::lock_guard lock(impl_->mutex);
  Statement row = impl_->database.Prepare(
      "SELECT id FROM episodes ep WHERE best_speedup IS NOT NULL AND state <> 'running' AND NOT EXISTS (SELECT 1 "
      "FROM evaluations c WHERE c.episode = ep.id AND c.turn = ep.best_turn AND c.purpose = 'confirm' "
      "AND c.superseded_by IS NULL AND c.rules_version >= ?) ORDER BY id");
  row.Bind(kSecurityRulesVersion);
  std::vector<std::string> episodes;
  while (row.Step()) episodes.push_back(row.Text(0));
  return episodes;
}

}  // namespace kevin
