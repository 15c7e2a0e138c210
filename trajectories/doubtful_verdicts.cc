#include "trajectories/doubtful_verdicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "env/outcome.h"
#include "trajectories/engine.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

bool IsOld(const TurnFigures& turn) { return turn.turn > 0 && IsOfOlderRules(turn.rules_version); }
bool IsDisturbed(const TurnFigures& turn) { return turn.turn > 0 && turn.correct && turn.shared_gpu; }

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

void ForgetBest(EpisodeFigures* e) {
  e->best_turn = -1;
  e->best_speedup = e->best_log_se = kNotKnown;
}

// How many.
int64_t TakeOut(bool (*is_out)(const TurnFigures&), EpisodeFigures* e, std::vector<TurnFigures>* turns) {
  const auto begin = turns->begin() + static_cast<std::ptrdiff_t>(e->first_turn);
  const auto end = begin + static_cast<std::ptrdiff_t>(e->turn_count);
  const auto out = std::count_if(begin, end, is_out);
  if (out > 0) e->turn_count = static_cast<size_t>(std::remove_if(begin, end, is_out) - begin);
  return out;
}

bool HasTurns(const EpisodeFigures& e, const std::vector<TurnFigures>& turns) {
  const auto begin = turns.begin() + static_cast<std::ptrdiff_t>(e.first_turn);
  return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(e.turn_count),
                     [](const TurnFigures& t) { return t.turn > 0; });
}

// Winners first, then what else was measured, the faster the earlier, then the failures.
bool ComesBefore(const DoubtfulVerdict& a, const DoubtfulVerdict& b) {
  const auto place = [](const DoubtfulVerdict& v) { return v.is_winner ? 0 : v.speedup > 0 ? 1 : 2; };
  if (place(a) != place(b)) return place(a) < place(b);
  return a.speedup > b.speedup;
}

// A turn with its verdict as it stands, whatever its age.
struct StandingVerdict {
  DoubtfulVerdict verdict;
  bool is_doubtful = false;
};

std::vector<StandingVerdict> ReadStanding(Database& database) {
  Statement row = database.Prepare(
      "SELECT own.episode, own.turn, ep.problem, own.problem_hash, own.key, own.kind, own.device, e.outcome, "
      "CASE WHEN e.correct = 1 THEN e.speedup END, e.rules_version, "
      "CASE WHEN e.correct = 1 THEN e.shared_gpu ELSE 0 END "
      "FROM evaluations own "
      "JOIN episodes ep ON ep.id = own.episode JOIN evaluations e ON e.id = coalesce(own.superseded_by, own.id) "
      "WHERE own.purpose IN ('turn', 'start') AND own.candidate IS NOT NULL ORDER BY own.episode, own.turn");
  std::vector<StandingVerdict> standing;
  while (row.Step()) {
    StandingVerdict s;
    DoubtfulVerdict& v = s.verdict;
    v.episode = row.Text(0), v.turn = static_cast<int>(row.Integer(1)), v.problem = row.Text(2);
    v.problem_hash = row.Text(3), v.key = row.Text(4), v.kind = row.Text(5), v.device = row.Text(6);
    v.outcome = row.Text(7), v.speedup = row.IsNull(8) ? 0 : row.Real(8);
    s.is_doubtful = IsOfOlderRules(static_cast<int>(row.Integer(9))) || row.Integer(10) != 0;
    standing.push_back(std::move(s));
  }
  return standing;
}

void MarkWinners(std::vector<StandingVerdict>* standing) {
  for (size_t first = 0, end = 0; first < standing->size(); first = end) {
    size_t best = first;
    for (end = first; end < standing->size(); ++end) {
      const DoubtfulVerdict& v = (*standing)[end].verdict;
      if (v.episode != (*standing)[first].verdict.episode) break;
      if (v.speedup > (*standing)[best].verdict.speedup) best = end;
    }
    (*standing)[best].verdict.is_winner = (*standing)[best].verdict.speedup > 0;
  }
}

}  // namespace

bool IsOfOlderRules(int rules_version) { return rules_version < kSecurityRulesVersion; }

bool IsDoubtful(const EvaluationRecord& e) {
  return IsOfOlderRules(e.rules_version) || (e.correct && e.shared_gpu);
}

LeftOutVerdicts& LeftOutVerdicts::operator+=(const LeftOutVerdicts& more) {
  old += more.old, shared_gpu += more.shared_gpu, episodes += more.episodes;
  return *this;
}

LeftOutVerdicts LeaveOutDoubtful(LeaveOut what, const AcceptedVerdicts& accept, Figures* figures) {
  const std::set<std::string> in_doubt = accept.old ? std::set<std::string>() : RunsInDoubt(*figures);
  LeftOutVerdicts left_out;
  std::erase_if(figures->episodes, [&](EpisodeFigures& e) {
    if (!accept.old && e.best_turn >= 0 && IsOfOlderRules(e.best_rules_version)) ForgetBest(&e);
    const bool is_best_disturbed = !accept.shared_gpu && e.best_turn >= 0 && e.best_shared_gpu;
    if (is_best_disturbed) ForgetBest(&e);
    const int64_t old = in_doubt.contains(e.run) ? TakeOut(IsOld, &e, &figures->turns) : 0;
    const int64_t disturbed =
        (accept.shared_gpu ? 0 : TakeOut(IsDisturbed, &e, &figures->turns)) + is_best_disturbed;
    left_out.old += old, left_out.shared_gpu += disturbed;
    if (old + disturbed == 0) return false;
    const bool stays = what == LeaveOut::kTurns && HasTurns(e, figures->turns);
    left_out.episodes += !stays;
    return !stays;
  });
  return left_out;
}

std::string LeftOutText(const LeftOutVerdicts& left_out, const std::vector<std::string>& databases) {
  const std::string file = databases.size() == 1 ? WithoutPassword(databases.front()) : "FILE";
  std::string text;
  const auto say = [&](int64_t verdicts, const std::string& why, const char* option) {
    if (verdicts == 0) return;
    text +=
        fmt::format("{}{} verdict{} left out: {}; kevin db rejudge {} evaluates them again; {} keeps them",
                    text.empty() ? "" : "; ", verdicts, verdicts == 1 ? " was" : "s were", why, file, option);
  };
  say(left_out.old,
      fmt::format("given under rules before version {}, which false results could pass",
                  kSecurityRulesVersion),
      "--accept-old-verdicts");
  say(left_out.shared_gpu, "timed while another process computed on the GPU", "--accept-shared-gpu");
  return text;
}

std::vector<DoubtfulVerdict> Store::DoubtfulVerdicts() {
  const std::lock_guard lock(impl_->mutex);
  std::vector<StandingVerdict> standing = ReadStanding(impl_->database);
  MarkWinners(&standing);
  std::stable_sort(standing.begin(), standing.end(),
                   [](const auto& a, const auto& b) { return ComesBefore(a.verdict, b.verdict); });
  std::map<std::string, size_t> of_key;
  std::vector<DoubtfulVerdict> doubtful;
  for (StandingVerdict& s : standing) {
    if (!s.is_doubtful) continue;
    const auto [place, is_first] = of_key.try_emplace(s.verdict.key, doubtful.size());
    if (is_first) {
      doubtful.push_back(std::move(s.verdict));
    } else {
      ++doubtful[place->second].turns;
    }
  }
  return doubtful;
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
      "AND c.superseded_by IS NULL AND c.rules_version >= ? AND c.shared_gpu = 0) ORDER BY id");
  row.Bind(kSecurityRulesVersion);
  std::vector<std::string> episodes;
  while (row.Step()) episodes.push_back(row.Text(0));
  return episodes;
}

}  // namespace kevin
