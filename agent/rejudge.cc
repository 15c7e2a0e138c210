#include "agent/rejudge.h"

#include <algorithm>
#include <chrono>

#include "agent/journal.h"
#include "agent/judge.h"
#include "agent/ranking.h"
#include "agent/records.h"
#include "env/error.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

bool IsSet(const CancelToken* token) { return token != nullptr && *token; }

bool IsWanted(const RejudgeRequest& request, const std::string& problem) {
  if (request.problems.empty()) return true;
  return std::any_of(request.problems.begin(), request.problems.end(), [&](const std::string& wanted) {
    return problem == wanted || (wanted.ends_with("/") && problem.starts_with(wanted));
  });
}

bool IsMeasuredNow(const EvaluationRecord& e) { return e.correct && e.speedup.has_value(); }
bool IsNew(const EvaluationRecord& e) { return !IsDoubtful(e); }

const TurnRecord* TurnOf(const std::vector<TurnRecord>& turns, int number) {
  const auto found =
      std::find_if(turns.begin(), turns.end(), [&](const auto& t) { return t.turn == number; });
  return found == turns.end() ? nullptr : &*found;
}

const TurnRecord* FastestOf(const std::vector<TurnRecord>& turns) {
  const TurnRecord* fastest = nullptr;
  for (const TurnRecord& turn : turns) {
    if (!IsMeasuredNow(turn.evaluation)) continue;
    if (fastest == nullptr || turn.evaluation.speedup->value > fastest->evaluation.speedup->value)
      fastest = &turn;
  }
  return fastest;
}

class Rejudge {
 public:
  Rejudge(Store& store, Environment& environment, const ProblemFinder& find, const RejudgeRequest& request,
          const RejudgeHooks& hooks, const CancelToken* drain, const CancelToken* stop)
      : store_(store),
        environment_(environment),
        find_(find),
        request_(request),
        hooks_(hooks),
        drain_(drain),
        stop_(stop) {}

  RejudgeEnd Run() {
    const RejudgePlan plan = Plan();
    if (hooks_.on_plan) hooks_.on_plan(plan);
    for (const DoubtfulVerdict& verdict : plan.verdicts) {
      if (IsAskedToEnd()) break;
      if (JudgeAgain(verdict)) Settle(verdict);
    }
    SettleTheRest();
    end_.is_interrupted = IsSet(drain_) || IsSet(stop_);
    return end_;
  }

 private:
  bool IsAskedToEnd() const { return IsSet(drain_) || IsSet(stop_) || !end_.failure.empty(); }

  // --- What there is to do ---

  RejudgePlan Plan() {
    RejudgePlan plan;
    for (DoubtfulVerdict& verdict : store_.DoubtfulVerdicts()) {
      std::string why_not;
      if (!IsWanted(request_, verdict.problem)) continue;
      if (verdict.speedup == 0 && !request_.failures) {
        ++plan.failures;
      } else if (!IsOfThisDevice(verdict)) {
        ++plan.elsewhere[verdict.device];
      } else if (ProblemOf(verdict.problem, verdict.problem_hash, &why_not) == nullptr) {
        plan.missing.try_emplace(verdict.problem, why_not);
        ++plan.without_problem;
      } else if (request_.limit > 0 && static_cast<int64_t>(plan.verdicts.size()) >= request_.limit) {
        ++plan.left;
      } else {
        plan.verdicts.push_back(std::move(verdict));
      }
    }
    return plan;
  }

  bool IsOfThisDevice(const DoubtfulVerdict& verdict) const {
    const EnvironmentFacts& facts = environment_.Facts();
    return DeviceModel(verdict.device) == DeviceModel(facts.device) &&
           std::find(facts.kinds.begin(), facts.kinds.end(), verdict.kind) != facts.kinds.end();
  }

  // Null where it is not to be had.
  const Problem* ProblemOf(const std::string& id, const std::string& hash, std::string* why_not) {
    const auto found = problems_.find(hash);
    if (found != problems_.end()) return found->second ? &*found->second : nullptr;
    const auto& kept = problems_[hash] = find_(id, hash, why_not);
    return kept ? &*kept : nullptr;
  }

  // --- One candidate ---

  // As the episode that the turn belongs to judged it: in its conditions, beside the user's own kernel if there is one
  // that still counts.
  EvaluateOptions OptionsOf(const EvaluationRecord& own, const std::vector<TurnRecord>& turns) const {
    EvaluateOptions options;
    options.workload = own.workload;
    const TurnRecord* start = TurnOf(turns, 0);
    if (own.purpose != "start" && start != nullptr && IsMeasuredNow(start->evaluation)) {
      options.start_source = start->evaluation.source;  // as it was judged: without knobs
      options.start_kind = start->evaluation.kind;
    }
    return options;
  }

  // False: it stays as it was.
  bool JudgeAgain(const DoubtfulVerdict& verdict) {
    const auto start = std::chrono::steady_clock::now();
    const std::optional<TurnRecord> turn = store_.LoadTurn(verdict.episode, verdict.turn);
    if (!turn) return false;
    const EpisodeRecord episode = store_.FindEpisode(verdict.episode);
    const EvaluationRecord& own = turn->evaluation;
    Rejudgement done{verdict, {}, 0, false, 0};
    const bool is_judged = Try(verdict, [&] {
      const Problem problem = own.workload.Apply(*ProblemOf(verdict.problem, verdict.problem_hash, nullptr));
      Judge judge = JudgeFor(problem, OptionsOf(own, CurrentTurns(store_, episode.id)), verdict);
      const Candidate candidate{own.kind, own.source};
      const Ruling ruling = judge.Decide(verdict.turn, candidate);
      if (IsSet(stop_)) return false;
      done.now = ToRecord(ruling.evaluation, candidate, problem, "rejudge");
      return true;
    });
    if (!is_judged) return false;
    done.now.id = store_.AppendRejudgement(verdict.episode, verdict.turn, done.now, verdict.key);
    done.contradicts = verdict.speedup > 0 && !done.now.correct;
    done.number = ++end_.judged;
    done.total_s = SecondsSince(start);
    end_.contradictions += done.contradicts;
    if (hooks_.on_verdict) hooks_.on_verdict(done);
    return true;
  }

  Judge JudgeFor(const Problem& problem, const EvaluateOptions& options, const DoubtfulVerdict& verdict) {
    Judge judge(problem, environment_, store_, options, {0, 0}, 0, stop_);
    if (hooks_.on_phase)
      judge.set_on_phase([this, verdict](const std::string& phase) { hooks_.on_phase(verdict, phase); });
    return judge;
  }

  // Runs `work`. An Error of the environment is reported; false then.
  bool Try(const DoubtfulVerdict& verdict, const std::function<bool()>& work) {
    try {
      const bool is_done = work();
      errors_in_a_row_ = 0;
      return is_done;
    } catch (const StoreBroken&) {
      throw;
    } catch (const Error& error) {
      if (IsSet(stop_)) return false;
      ++end_.errors;
      if (hooks_.on_error) hooks_.on_error(verdict, error.what());
      if (++errors_in_a_row_ >= kMostErrorsInARow) end_.failure = error.what();
    }
    return false;
  }

  // --- The best of an episode ---

  bool HasNewConfirmation(const EpisodeRecord& episode) {
    for (const EvaluationRecord& e : store_.LoadEvaluations(episode.id, *episode.best_turn)) {
      if (e.purpose == "confirm" && IsNew(e) && e.superseded_by.empty()) return true;
    }
    return false;
  }

  // Whether the best turn is to be confirmed anew once its verdict is new: because its confirmation is old, or because
  // the turn `judged` (-1: none) now reads faster than it.
  bool NeedsConfirmation(const EpisodeRecord& episode, const std::vector<TurnRecord>& turns, int judged) {
    if (episode.state == EpisodeState::kRunning || !episode.best_turn || !episode.best_speedup) return false;
    if (!HasNewConfirmation(episode)) return true;
    const TurnRecord* turn = TurnOf(turns, judged);
    return turn != nullptr && judged != *episode.best_turn && IsMeasuredNow(turn->evaluation) &&
           turn->evaluation.speedup->value > *episode.best_speedup;
  }

  void Settle(const DoubtfulVerdict& verdict) { Settle(verdict.episode, verdict.turn); }

  void Settle(const std::string& id, int judged) {
    const EpisodeRecord episode = store_.FindEpisode(id);
    const std::vector<TurnRecord> turns = CurrentTurns(store_, id);
    if (!NeedsConfirmation(episode, turns, judged)) return;
    const TurnRecord* fastest = FastestOf(turns);
    if (fastest != nullptr && !IsNew(fastest->evaluation))
      return;  // its own turn comes, here or at a later start
    std::vector<TurnRecord> correct;
    for (const TurnRecord& turn : turns) {
      if (IsMeasuredNow(turn.evaluation) && IsNew(turn.evaluation)) correct.push_back(turn);
    }
    bool is_whole = true;
    const auto confirm = [&](int number, std::optional<int> against) {
      std::optional<Confirmed> confirmed;
      const TurnRecord* rival = against ? TurnOf(turns, *against) : nullptr;
      is_whole =
          is_whole && !IsAskedToEnd() && Confirm(episode, turns, *TurnOf(turns, number), rival, &confirmed);
      if (!confirmed) std::erase_if(correct, [&](const TurnRecord& t) { return t.turn == number; });
      return confirmed;
    };
    const std::optional<Winner> winner = ConfirmWinner([&] { return RankingOf(correct); }, confirm);
    if (is_whole) Finish(episode, turns, winner);
  }

  // `rival`: the turn to compare with in the same pairs; null: the user's own kernel, if there is one. False:
  // interrupted, or the environment failed; then nothing is stored.
  bool Confirm(const EpisodeRecord& episode, const std::vector<TurnRecord>& turns, const TurnRecord& turn,
               const TurnRecord* rival, std::optional<Confirmed>* confirmed) {
    DoubtfulVerdict verdict;
    verdict.episode = episode.id, verdict.turn = turn.turn, verdict.problem = episode.problem;
    verdict.problem_hash = episode.problem_hash, verdict.device = episode.device;
    verdict.kind = turn.evaluation.kind;
    std::string why_not;
    const Problem* problem = ProblemOf(episode.problem, episode.problem_hash, &why_not);
    if (problem == nullptr || !IsOfThisDevice(verdict)) return false;
    return Try(verdict, [&] {
      const EvaluationRecord& now = turn.evaluation;
      const Problem applied = now.workload.Apply(*problem);
      Judge judge = JudgeFor(applied, OptionsOf(now, turns), verdict);
      if (rival != nullptr) judge.set_rival({rival->evaluation.source, rival->evaluation.kind});
      const Candidate candidate{now.kind, now.source};
      Evaluation evaluation = judge.Confirm(candidate);
      if (IsSet(stop_)) return false;
      std::optional<Ratio> against;
      if (rival != nullptr) against = TakeComparison(*rival, &evaluation);
      EvaluationRecord record = ToRecord(evaluation, candidate, applied, "confirm");
      if (against) record.against_best = against, record.against_best_turn = rival->turn;
      store_.AppendEvaluation(episode.id, turn.turn, record,
                              record.correct ? std::vector<std::string>{} : store_.VerdictsUnderKey(now.key));
      end_.contradictions += !record.correct;
      if (record.speedup) *confirmed = Confirmed{*record.speedup, against};
      return true;
    });
  }

  void Finish(const EpisodeRecord& episode, const std::vector<TurnRecord>& turns,
              const std::optional<Winner>& winner) {
    EpisodeEnd end;
    end.state = episode.state, end.state_reason = episode.state_reason;
    if (winner) {
      end.best_turn = winner->turn;
      end.best_speedup = winner->speedup.value;
      end.best_speedup_low = winner->speedup.low, end.best_speedup_high = winner->speedup.high;
      end.best_path =
          winner->turn == episode.best_turn ? episode.best_path : TurnOf(turns, winner->turn)->source_path;
    }
    store_.FinishEpisode(episode.id, end);
    ++(winner ? end_.confirmed : end_.without_best);
  }

  // Of episodes whose turns were judged with those of others, or before an earlier start ended.
  void SettleTheRest() {
    for (const std::string& id : store_.EpisodesToConfirm()) {
      if (IsAskedToEnd()) return;
      if (IsWanted(request_, store_.FindEpisode(id).problem)) Settle(id, -1);
    }
  }

  Store& store_;
  Environment& environment_;
  const ProblemFinder& find_;
  const RejudgeRequest& request_;
  const RejudgeHooks& hooks_;
  const CancelToken* const drain_;
  const CancelToken* const stop_;
  std::map<std::string, std::optional<Problem>> problems_;  // by content hash
  int errors_in_a_row_ = 0;
  RejudgeEnd end_;
};

}  // namespace

RejudgeEnd RunRejudge(Store& store, Environment& environment, const ProblemFinder& find,
                      const RejudgeRequest& request, const RejudgeHooks& hooks, const CancelToken* drain,
                      const CancelToken* stop) {
  return Rejudge(store, environment, find, request, hooks, drain, stop).Run();
}

}  // namespace kevin
