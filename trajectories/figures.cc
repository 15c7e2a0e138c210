// The Store's methods that read and write many rows at once.
#include "trajectories/figures.h"

#include <algorithm>
#include <unordered_map>

#include "trajectories/catalog.h"
#include "trajectories/identity.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

constexpr OutcomeKind kOutcomes[] = {
    OutcomeKind::kParseFailed, OutcomeKind::kCompileFailed, OutcomeKind::kRefused, OutcomeKind::kCrashed,
    OutcomeKind::kTimedOut,    OutcomeKind::kWrong,         OutcomeKind::kMeasured};

OutcomeKind OutcomeFromName(const std::string& name) {
  for (const OutcomeKind kind : kOutcomes) {
    if (name == OutcomeKindName(kind)) return kind;
  }
  return OutcomeKind::kRefused;
}

ReplyForm ReplyFormNamed(const std::string& name) {
  for (size_t i = 1; i < kReplyForms; ++i) {
    if (name == ReplyFormName(static_cast<ReplyForm>(i))) return static_cast<ReplyForm>(i);
  }
  return ReplyForm::kUnknown;
}

// " WHERE column IN (?, ?)", or nothing for all runs.
std::string OfRuns(const std::vector<std::string>& runs, const std::string& column, bool by_episode) {
  if (runs.empty()) return "";
  std::string marks = "?";
  for (size_t i = 1; i < runs.size(); ++i) marks += ", ?";
  if (!by_episode) return " WHERE " + column + " IN (" + marks + ")";
  return " WHERE " + column + " IN (SELECT id FROM episodes WHERE run IN (" + marks + "))";
}

double RealOrUnknown(const Statement& row, int column) {
  return row.IsNull(column) ? kNotKnown : row.Real(column);
}

// The columns of a verdict, from `first` on.
struct VerdictRow {
  OutcomeKind outcome;
  bool compiled, correct;
  double speedup, log_se, score;
  int rules_version;
  bool shared_gpu;
};
constexpr char kVerdictColumns[] =
    "outcome, compiled, correct, speedup, log_se, score, rules_version, shared_gpu";
VerdictRow ReadVerdict(const Statement& row, int first) {
  return {OutcomeFromName(row.Text(first)),
          row.Integer(first + 1) != 0,
          row.Integer(first + 2) != 0,
          RealOrUnknown(row, first + 3),
          RealOrUnknown(row, first + 4),
          row.Real(first + 5),
          static_cast<int>(row.Integer(first + 6)),
          row.Integer(first + 7) != 0};
}

class Loader {
 public:
  Loader(Database& database, const std::vector<std::string>& runs) : database_(database), runs_(runs) {}

  Figures Load() {
    LoadProblems();
    LoadEpisodes();
    LoadTurns();
    LoadEvaluations();
    ForgetContradictedWinners();
    LoadCosts();
    return std::move(figures_);
  }

 private:
  Statement Prepare(const std::string& sql) {
    Statement statement = database_.Prepare(sql);
    statement.BindAll(runs_);
    return statement;
  }

  void LoadProblems() {
    Statement row =
        database_.Prepare("SELECT content_hash, id, name, families, flags FROM problems ORDER BY id");
    const auto list = [&](int column) {
      return nlohmann::json::parse(row.Text(column)).get<std::vector<std::string>>();
    };
    while (row.Step()) {
      problem_of_[row.Text(0)] = static_cast<int>(figures_.problems.size());
      figures_.problems.push_back({row.Text(0), row.Text(1), row.Text(2), list(3), list(4)});
    }
  }

  void LoadEpisodes() {
    Statement row = Prepare(
        "SELECT id, run, problem_hash, policy, kind, device, size, inputs, precision, tf32, state, "
        "started_at, rules, turns_asked, best_turn, best_speedup, seconds FROM episodes" +
        OfRuns(runs_, "run", false) + " ORDER BY id");
    while (row.Step()) {
      EpisodeFigures e;
      e.id = row.Text(0), e.run = row.Text(1), e.problem = problem_of_[row.Text(2)], e.policy = row.Text(3);
      e.kind = row.Text(4), e.device = row.Text(5), e.workload.size = row.Text(6),
      e.workload.inputs = row.Text(7);
      e.workload.precision = row.Text(8), e.workload.tf32 = row.Integer(9) != 0, e.state = row.Text(10);
      e.started_at = row.Text(11), e.workload.rules = row.Text(12);
      e.turns_asked = static_cast<int>(row.Integer(13));
      e.best_turn = row.IsNull(14) ? -1 : static_cast<int>(row.Integer(14));
      e.best_speedup = RealOrUnknown(row, 15), e.seconds = row.Real(16);
      episode_of_[e.id] = figures_.episodes.size();
      figures_.episodes.push_back(std::move(e));
    }
  }

  // Rows come ordered by episode, so that most ask for the one before.
  EpisodeFigures* EpisodeOf(const std::string& id) {
    if (last_ != nullptr && last_->id == id) return last_;
    const auto found = episode_of_.find(id);
    return last_ = found == episode_of_.end() ? nullptr : &figures_.episodes[found->second];
  }

  int32_t ModelOf(const std::string& name) {
    if (!figures_.models.empty() && figures_.models[static_cast<size_t>(last_model_)] == name)
      return last_model_;
    const auto found = std::find(figures_.models.begin(), figures_.models.end(), name);
    last_model_ = static_cast<int32_t>(found - figures_.models.begin());
    if (found == figures_.models.end()) figures_.models.push_back(name);
    return last_model_;
  }

  void LoadTurns() {
    Statement row = Prepare(
        "SELECT episode, turn, model, stop_reason, generate_s, overhead_s, seconds, reward, prompt_tokens, "
        "completion_tokens, reply_form FROM turns" +
        OfRuns(runs_, "episode", true) + " ORDER BY episode, turn");
    while (row.Step()) {
      EpisodeFigures* episode = EpisodeOf(row.Text(0));
      if (episode == nullptr) continue;  // its episode began after the episodes were read
      TurnFigures t;
      t.turn = static_cast<int32_t>(row.Integer(1)), t.model = ModelOf(row.Text(2));
      t.cut_off = row.Text(3) == "length";
      t.reply_form = ReplyFormNamed(row.Text(10));
      t.generate_s = row.Real(4), t.overhead_s = row.Real(5), t.seconds = row.Real(6);
      t.score = row.Real(7);
      t.prompt_tokens = RealOrUnknown(row, 8), t.completion_tokens = RealOrUnknown(row, 9);
      if (episode->turn_count++ == 0) episode->first_turn = figures_.turns.size();
      figures_.turns.push_back(t);
    }
  }

  TurnFigures* TurnOf(const EpisodeFigures& episode, int32_t number) {
    const auto begin = figures_.turns.begin() + static_cast<std::ptrdiff_t>(episode.first_turn);
    const auto end = begin + static_cast<std::ptrdiff_t>(episode.turn_count);
    const auto found = std::lower_bound(begin, end, number,
                                        [](const TurnFigures& t, int32_t wanted) { return t.turn < wanted; });
    return found == end || found->turn != number ? nullptr : &*found;
  }

  void LoadOverriding() {
    Statement row = database_.Prepare(
        std::string("SELECT id, ") + kVerdictColumns +
        " FROM evaluations WHERE id IN (SELECT superseded_by FROM evaluations WHERE superseded_by IS NOT "
        "NULL)");
    while (row.Step()) overriding_.emplace(row.Text(0), ReadVerdict(row, 1));
  }

  void LoadEvaluations() {
    LoadOverriding();
    Statement row =
        Prepare(std::string("SELECT episode, turn, purpose, superseded_by, cached_from, ") + kVerdictColumns +
                ", compile_s, verify_s, measure_s, wait_s, device_s FROM evaluations" +
                OfRuns(runs_, "episode", true) + " ORDER BY episode, turn");
    while (row.Step()) {
      EpisodeFigures* episode = EpisodeOf(row.Text(0));
      if (episode == nullptr) continue;
      episode->device_s += row.IsNull(17) ? 0 : row.Real(17);
      const std::string purpose = row.Text(2);
      const auto number = static_cast<int32_t>(row.Integer(1));
      // The confirmation behind best_speedup is the one with its number.
      if (purpose == "confirm" && number == episode->best_turn &&
          (std::isnan(episode->best_log_se) || row.Real(8) == episode->best_speedup)) {
        episode->best_log_se = RealOrUnknown(row, 9);
        episode->best_rules_version = static_cast<int>(row.Integer(11));
        episode->best_shared_gpu = row.Integer(12) != 0;
      }
      if (purpose != "turn" && purpose != "start") continue;
      if (TurnFigures* turn = TurnOf(*episode, number)) Fill(row, turn);
    }
  }

  // A winner that a later verdict contradicts, perhaps of another episode, is none any more.
  void ForgetContradictedWinners() {
    for (EpisodeFigures& e : figures_.episodes) {
      const TurnFigures* best = e.best_turn < 0 ? nullptr : TurnOf(e, e.best_turn);
      if (best == nullptr || best->correct) continue;
      e.best_turn = -1, e.best_rules_version = 0, e.best_shared_gpu = false;
      e.best_speedup = e.best_log_se = kNotKnown;
    }
  }

  void LoadCosts() {
    Statement row = Prepare(
        "SELECT episode, count(*), count(*) - count(cost_usd), coalesce(sum(cost_usd), 0.0) "
        "FROM requests" +
        OfRuns(runs_, "episode", true) + " GROUP BY episode ORDER BY episode");
    while (row.Step()) {
      EpisodeFigures* episode = EpisodeOf(row.Text(0));
      if (episode == nullptr) continue;
      episode->requests = row.Integer(1), episode->unknown_costs = row.Integer(2);
      episode->cost_usd = row.Real(3);
    }
  }

  void Fill(const Statement& row, TurnFigures* turn) {
    VerdictRow verdict = ReadVerdict(row, 5);
    verdict.score = turn->score;
    if (!row.IsNull(3)) {
      const auto last_word = overriding_.find(row.Text(3));
      if (last_word != overriding_.end()) verdict = last_word->second;
    }
    turn->cached = !row.IsNull(4);
    turn->outcome = verdict.outcome, turn->compiled = verdict.compiled, turn->correct = verdict.correct;
    turn->speedup = verdict.speedup, turn->log_se = verdict.log_se, turn->score = verdict.score;
    turn->rules_version = static_cast<int16_t>(verdict.rules_version);
    turn->shared_gpu = verdict.shared_gpu;
    turn->compile_s = row.Real(13), turn->verify_s = row.Real(14), turn->measure_s = row.Real(15);
    turn->wait_s = row.Real(16);
  }

  Database& database_;
  const std::vector<std::string>& runs_;
  Figures figures_;
  std::unordered_map<std::string, int> problem_of_;
  std::unordered_map<std::string, size_t> episode_of_;
  std::unordered_map<std::string, VerdictRow> overriding_;
  EpisodeFigures* last_ = nullptr;
  int32_t last_model_ = 0;
};

std::string RunsJson(std::vector<std::string> runs) {
  std::sort(runs.begin(), runs.end());
  return nlohmann::json(runs).dump();
}

// An earlier result of the same scheme for the same runs makes room.
void DeleteOlder(Database& database, const AttributionRecord& a, const std::string& runs,
                 const std::string& newest) {
  const std::string older = "(SELECT id FROM attributions WHERE scheme = ? AND runs = ? AND id <> ?)";
  database.Prepare("DELETE FROM turn_attributions WHERE attribution IN " + older)
      .Bind(a.scheme, runs, newest)
      .Run();
  database.Prepare("DELETE FROM attributions WHERE scheme = ? AND runs = ? AND id <> ?")
      .Bind(a.scheme, runs, newest)
      .Run();
}

}  // namespace

const char* ReplyFormName(ReplyForm form) {
  static constexpr const char* kNames[kReplyForms] = {"", "whole", "file", "diff", "function"};
  return kNames[static_cast<size_t>(form)];
}

const char* OutcomeKindName(OutcomeKind kind) {
  static constexpr const char* kNames[] = {"parse_failed", "compile_failed", "refused", "crashed",
                                           "timed_out",    "wrong",          "measured"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<RunFigures> Store::ListRuns() {
  const std::lock_guard lock(impl_->mutex);
  Statement row = impl_->database.Prepare(
      "SELECT id, command, started_at, finished_at, (SELECT count(*) FROM episodes e WHERE e.run = runs.id) "
      "FROM runs ORDER BY id");
  std::vector<RunFigures> runs;
  while (row.Step()) runs.push_back({row.Text(0), row.Text(1), row.Text(2), row.Text(3), row.Integer(4)});
  return runs;
}

Figures Store::LoadFigures(const std::vector<std::string>& runs) {
  const std::lock_guard lock(impl_->mutex);
  const Snapshot snapshot(impl_->database);
  return Loader(impl_->database, runs).Load();
}

std::string Store::SaveAttribution(const AttributionRecord& a, const std::vector<std::string>& episodes,
                                   const std::vector<TurnAttributionRecord>& turns) {
  const std::lock_guard lock(impl_->mutex);
  Transaction transaction = impl_->BeginWrite();
  const std::string id = NewUlid(), runs = RunsJson(a.runs);
  impl_->database
      .Prepare(InsertSql("INSERT", "attributions",
                         "id, scheme, parameters, runs, turns, groups, flat_groups, created_at"))
      .Bind(id, a.scheme, a.parameters, runs, static_cast<int64_t>(turns.size()), a.groups, a.flat_groups,
            UtcNow())
      .Run();
  Statement insert = impl_->database.Prepare(InsertSql(
      "INSERT", "turn_attributions", "attribution, episode, turn, score, score_se, \"return\", advantage"));
  for (const TurnAttributionRecord& t : turns) {
    insert.Bind(id, episodes[t.episode], t.turn, t.score, t.score_se, t.value, t.advantage).Run();
  }
  DeleteOlder(impl_->database, a, runs, id);
  transaction.Commit();
  return id;
}

}  // namespace kevin
