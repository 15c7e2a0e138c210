#include "agent/episode.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>

#include "agent/ask.h"
#include "agent/conversation.h"
#include "agent/feedback.h"
#include "agent/journal.h"
#include "agent/machine.h"
#include "agent/memory.h"
#include "agent/parse.h"
#include "agent/phase_gate.h"
#include "agent/records.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/machine.h"
#include "env/verdict/words.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

struct Interrupted {};

std::optional<Confirmed> ConfirmedBy(const EvaluationRecord& made) {
  if (!made.correct || !made.speedup) return std::nullopt;
  return Confirmed{*made.speedup, made.against_best};
}

class Episode {
 public:
  Episode(const Problem& problem, Policy& policy, Environment& environment, Store& store,
          const EpisodeOptions& options, const EpisodeHooks& hooks, const CancelToken* cancel)
      : problem_(problem),
        options_(CompletedBy(environment.Facts(), options)),
        sized_(AtFirstShape(problem, options_.workload.size)),
        policy_(policy),
        gate_(GateOf(policy, environment.Facts().device)),
        environment_(environment),
        hooks_(hooks),
        cancel_(cancel),
        context_(ConversationContextOf(sized_, options_, CandidateKindOf(options_, environment.Facts()),
                                       environment.Facts())),
        journal_(store, EpisodeOutput(options_.output),
                 [this](const TurnRecord& turn, const EvaluationRecord& verdict) {
                   return FeedbackAnew(turn, verdict);
                 }),
        asker_(policy, options_, journal_, gate_, cancel),
        judge_(problem, environment, store, EvaluateOptionsOf(options_), options_.audit_rates, options_.seed,
               cancel) {
    judge_.set_tune(options_.tune);
  }

  EpisodeRecord Run(Store& store) {
    Begin(store);
    try {
      TakeTurns();
      if (!winner_ && options_.confirm) {
        if (hooks_.on_confirm) hooks_.on_confirm();
        winner_ = ConfirmWinner([&] { return journal_.Ranking(); },
                                [&](int turn, std::optional<int> against) { return Confirm(turn, against); });
      }
      Finish(budget_reached_ ? EpisodeState::kInterrupted : EpisodeState::kDone, why_ended_);
    } catch (const Interrupted&) {
      Finish(EpisodeState::kInterrupted, "interrupted by the user");
    } catch (const std::exception& error) {
      FinishAfter(error);
      if (!Cancelled()) throw;
    }
    return store.FindEpisode(journal_.episode().id);
  }

 private:
  int LastTurn(int first) const { return options_.finish ? options_.turns : first + options_.turns - 1; }

  void TakeTurns() {
    if (!options_.start_source.empty() && journal_.turns().empty()) JudgeStart();
    const int first = journal_.turns().empty() ? 1 : journal_.turns().back().turn + 1;
    last_turn_ = LastTurn(first);
    for (int number = first; number <= last_turn_; ++number) {
      StopIfAsked();
      const Clock::time_point start = Clock::now();
      TurnRecord turn;
      try {
        turn = asker_.Ask(number, &context_, [&](const std::string& phase) { Announce(number, phase); });
        StopIfCancelled();
      } catch (const BudgetReached& reached) {
        budget_reached_ = true;
        why_ended_ = reached.what();
        if (hooks_.on_budget) hooks_.on_budget();
        return;
      } catch (const NothingLeft& left) {
        why_ended_ = left.what();
        return;
      }
      const ReplyFacts facts{turn.reasoning, turn.stop_reason == StopReasonName(StopReason::kLength)};
      const ParsedReply reply = ParseReply(turn.reply, context_.kind, EarlierKernels(), facts);
      turn.summary = reply.summary;
      turn.reply_form = reply.form;
      JudgeAndKeep(std::move(turn), reply, start);
      if (ReachedGoal()) return;
    }
  }

  void JudgeStart() {
    ParsedReply start;
    start.source = options_.start_source;
    JudgeAndKeep(NewTurn(0, options_.run), start, Clock::now());
  }

  // What a diff may refer to: the latest kernel, then the best one.
  std::vector<std::string> EarlierKernels() const {
    std::vector<std::string> kernels;
    for (const TurnRecord& turn : journal_.turns()) {
      if (!turn.evaluation.source.empty()) kernels = {turn.evaluation.source};
    }
    const TurnRecord* leader = journal_.Leader();
    if (leader != nullptr && leader->evaluation.source != kernels.front())
      kernels.push_back(leader->evaluation.source);
    return kernels;
  }

  void JudgeAndKeep(TurnRecord turn, const ParsedReply& reply, Clock::time_point start) {
    const int number = turn.turn;
    const std::string kind = number == 0 ? StartKind() : context_.kind;
    const PhaseGate::Pass judging(reply.source ? gate_ : nullptr, PhaseGate::kJudge, cancel_);
    AnnouncePhasesOf(number);
    const std::optional<TurnRecord> best = TimeAgainstBest();
    Ruling ruling =
        reply.source ? judge_.Decide(number, {kind, *reply.source}) : NoCandidate(kind, reply.failure);
    StopIfCancelled();
    const Candidate& candidate = ruling.candidate;
    std::optional<Ratio> against;
    if (best) against = TakeComparison(*best, &ruling.evaluation);
    turn.trials = ruling.trials;
    turn.tune_s = ruling.tune_s;
    turn.evaluation = ToRecord(ruling.evaluation, candidate, problem_, number == 0 ? "start" : "turn");
    if (against) turn.evaluation.against_best = against, turn.evaluation.against_best_turn = best->turn;
    const std::optional<Diagnosis> diagnosis =
        IsToDiagnose(turn) ? judge_.Diagnose(candidate, ruling.evaluation) : std::nullopt;
    turn.feedback =
        FormatFeedback(ruling.evaluation, candidate, turn, &reply, diagnosis ? &*diagnosis : nullptr);
    TakeCeilings(ruling.evaluation);
    turn.reward = turn.evaluation.score;
    journal_.WriteSource(&turn);
    turn.seconds = SecondsSince(start);
    turn.overhead_s = Overhead(turn, turn.seconds);
    std::optional<EvaluationRecord> audit;
    if (ruling.audit) audit = ToRecord(*ruling.audit, candidate, problem_, "audit");
    journal_.Append(std::move(turn), ruling.supersedes, audit ? &*audit : nullptr);
    const double seconds = SecondsSince(start);
    journal_.SetSeconds(number, seconds, Overhead(journal_.turn(number), seconds));
    if (ruling.rival_failed) CheckAgain(best->turn);
    if (hooks_.on_turn) hooks_.on_turn(journal_.turn(number), journal_.episode());
  }

  // Ceilings that were measured on a busy machine are too low; later prompts give the highest that is known.
  void TakeCeilings(const Evaluation& evaluation) {
    constexpr double kWorthSaying = 1.03;
    const auto take = [](double seen, double* told) {
      if (seen > kWorthSaying * *told) *told = seen;
    };
    take(evaluation.peak_gb_per_s, &context_.peak_gb_per_s);
    if (!context_.on_gpu) take(evaluation.peak_gflop_per_s, &context_.peak_gflop_per_s);
    for (const auto& [unit, rate] : evaluation.unit_gflop_per_s) take(rate, &context_.unit_gflop_per_s[unit]);
  }

  // The best turn so far takes part in the pairs of what is judged next. nullopt: there is none.
  std::optional<TurnRecord> TimeAgainstBest() {
    const TurnRecord* leader = journal_.Leader();
    if (leader == nullptr) {
      judge_.set_rival({});
      return std::nullopt;
    }
    const EvaluationRecord& best = leader->evaluation;
    judge_.set_rival(
        {best.source, best.kind, [this, slowest = best.speedup->low](const EvaluationRecord& stored) {
           return NeedsPairs(stored, slowest);
         }});
    return *leader;
  }

  // A stored time may answer where its candidate cannot be the best: it was compared in this episode before, or it is
  // clearly slower than the best.
  bool NeedsPairs(const EvaluationRecord& stored, double speedup_of_best) const {
    if (!StartSource().empty()) return true;
    for (const TurnRecord& turn : journal_.turns()) {
      if (turn.evaluation.correct && turn.evaluation.candidate_hash == stored.candidate_hash) return false;
    }
    return !stored.speedup || stored.speedup->high >= speedup_of_best;
  }

  // The best turn failed while it was timed beside another one.
  void CheckAgain(int number) {
    const EvaluationRecord& judged = journal_.turn(number).evaluation;
    const Candidate candidate{judged.kind, judged.source};
    judge_.set_rival({});
    const Evaluation evaluation = judge_.Confirm(candidate);
    StopIfCancelled();
    journal_.AppendEvaluation(number, ToRecord(evaluation, candidate, problem_, "audit"));
  }

  // --until: the latest turn is the fastest, its low end reaches the goal, and so does its confirmation's.
  bool ReachedGoal() {
    const TurnRecord& latest = journal_.turns().back();
    if (!options_.until || journal_.Leader() != &latest) return false;
    if (latest.evaluation.speedup->low < *options_.until) return false;
    const auto confirmed = Confirm(latest.turn, std::nullopt);
    if (!confirmed || confirmed->speedup.low < *options_.until) return false;
    winner_ = Winner{latest.turn, confirmed->speedup};
    return true;
  }

  // `against`: the turn to compare with in the same pairs; nullopt: the user's own kernel, if there is one.
  std::optional<Confirmed> Confirm(int number, std::optional<int> against) {
    if (auto made = TakeConfirmation(number, against)) return *made;
    StopIfAsked();
    const EvaluationRecord& judged = journal_.turn(number).evaluation;
    const Candidate candidate{judged.kind, judged.source};
    std::optional<TurnRecord> rival;
    if (against) rival = journal_.turn(*against);
    if (rival) {
      judge_.set_rival({rival->evaluation.source, rival->evaluation.kind});
    } else {
      judge_.set_rival(number == 0 ? Rival{} : Rival{StartSource(), StartKind()});
    }
    AnnouncePhasesOf(number);
    const PhaseGate::Pass judging(gate_, PhaseGate::kJudge, cancel_);
    Evaluation evaluation = judge_.Confirm(candidate);
    StopIfCancelled();
    std::optional<Ratio> ratio;
    if (rival) ratio = TakeComparison(*rival, &evaluation);
    EvaluationRecord record = ToRecord(evaluation, candidate, problem_, "confirm");
    if (ratio) record.against_best = ratio, record.against_best_turn = rival->turn;
    journal_.AppendEvaluation(number, record);
    return ConfirmedBy(record);
  }

  // The next confirmation of this turn, beside the same rival, that was stored before the episode was broken off.
  std::optional<std::optional<Confirmed>> TakeConfirmation(int number, std::optional<int> against) {
    auto& stored = confirmations_[number];
    const auto same = std::find_if(stored.begin(), stored.end(), [&](const EvaluationRecord& made) {
      return made.against_best_turn == against || !made.correct;
    });
    if (same == stored.end()) return std::nullopt;
    const EvaluationRecord made = *same;
    stored.erase(same);
    return ConfirmedBy(made);
  }

  // --- Beginning and end ---

  void Begin(Store& store) {
    const GraphFunction graph_of = [this](const Problem& problem, const std::string& size) {
      return environment_.Graph(problem, size);
    };
    RequirePolicyFor(problem_, policy_, options_, context_.kind, graph_of);
    if (policy_.ReadsGraphs())
      context_.shape_graphs = ShapeGraphs(problem_, options_.workload.size, graph_of);
    if (options_.memory != nullptr) Remember(graph_of);
    if (options_.sampling.n != 1)
      throw Error(ExitCode::kBadRequest, "an episode takes one reply per turn", "sample with n = 1");
    if (options_.continue_episode.empty()) {
      journal_.Begin(NewEpisode(problem_, policy_.Name(), environment_.Facts(), options_),
                     ToRecord(problem_));
    } else {
      RequireSameTask(store.FindEpisode(options_.continue_episode), problem_, environment_.Facts());
      Resume(store);
    }
    if (hooks_.on_begin) hooks_.on_begin(journal_.episode());
  }

  // Its graphs are needed too where the policy reads none.
  void Remember(const GraphFunction& graph_of) {
    Announce(1, "reading the memory");
    ConversationContext with_graphs = context_;
    with_graphs.shape_graphs = ShapeGraphs(problem_, options_.workload.size, graph_of);
    context_.related = options_.memory->Related(BuildTask(with_graphs, {}), options_.workload,
                                                environment_.Facts().device, graph_of);
  }

  void Resume(Store& store) {
    const int more = options_.finish ? options_.turns - store.FindEpisode(options_.continue_episode).turns
                                     : options_.turns;
    journal_.Resume(options_.continue_episode, options_.run, more);
    if (!options_.finish) return;
    for (const TurnRecord& turn : journal_.turns()) {
      for (EvaluationRecord& made : store.LoadEvaluations(journal_.episode().id, turn.turn)) {
        if (made.purpose == "confirm") confirmations_[turn.turn].push_back(std::move(made));
      }
    }
  }

  void Finish(EpisodeState state, const std::string& reason) {
    journal_.Finish(state, reason, winner_, SecondsSince(start_));
  }

  // The first failure is reported, even when closing the episode fails too.
  void FinishAfter(const std::exception& error) {
    try {
      Finish(Cancelled() ? EpisodeState::kInterrupted : EpisodeState::kFailed, error.what());
    } catch (const Error&) {
      if (Cancelled()) throw;
    }
  }

  // --- Helpers ---

  // A start may be PTX where the policy writes CUDA C++. That of a continued episode is stored with turn 0.
  std::string StartKind() const {
    if (!options_.start_kind.empty()) return options_.start_kind;
    const auto& turns = journal_.turns();
    const bool is_stored = !turns.empty() && turns.front().turn == 0;
    return is_stored ? turns.front().evaluation.kind : context_.kind;
  }

  // As it was judged in turn 0: without knobs.
  std::string StartSource() const {
    const auto& turns = journal_.turns();
    const bool is_judged = !turns.empty() && turns.front().turn == 0;
    return is_judged ? turns.front().evaluation.source : options_.start_source;
  }

  Ruling NoCandidate(const std::string& kind, const std::string& failure) const {
    Ruling ruling;
    ruling.candidate.kind = kind;
    ruling.evaluation.outcome = ParseFailed{failure};
    ruling.evaluation.workload = options_.workload;
    ruling.evaluation.workload.precision = "";
    ruling.evaluation.device = journal_.episode().device;
    ruling.evaluation.isolation = journal_.episode().isolation;
    return ruling;
  }

  std::string FormatFeedback(const Evaluation& evaluation, const Candidate& candidate, const TurnRecord& turn,
                             const ParsedReply* reply = nullptr, const Diagnosis* diagnosis = nullptr) const {
    FeedbackContext context{candidate.source, &sized_,     context_.threads,
                            context_.kind,    turn.trials, diagnosis};
    context.against_best = turn.evaluation.against_best;
    context.against_best_turn = turn.evaluation.against_best_turn.value_or(0);
    if (reply != nullptr)
      context.advice = reply->advice, context.unread = reply->unread, context.note = reply->note;
    context.is_start = turn.turn == 0;
    context.cache_bytes = cache_bytes_;
    if (!evaluation.unit_gflop_per_s.empty()) return Feedback(evaluation, context);
    Evaluation stored = evaluation;  // records do not have the rates of all units
    stored.unit_gflop_per_s = context_.unit_gflop_per_s;
    return Feedback(stored, context);
  }

  // The turn's text may have been judged before; its verdict is another one.
  std::string FeedbackAnew(const TurnRecord& turn, const EvaluationRecord& verdict) const {
    Evaluation evaluation = FromRecord(verdict);
    evaluation.cached_from.clear();
    return FormatFeedback(evaluation, {turn.evaluation.kind, turn.evaluation.source}, turn);
  }

  // Before the turn is appended: whether it takes the lead, or may be as good as the leader.
  bool IsToDiagnose(const TurnRecord& turn) const {
    if (!turn.evaluation.speedup || options_.diagnose == DiagnoseTurns::kOff) return false;
    if (!options_.diagnose_last && turn.turn == last_turn_) return false;
    if (options_.diagnose == DiagnoseTurns::kAll || journal_.Leader() == nullptr) return true;
    const std::optional<Ratio>& against = turn.evaluation.against_best;
    return against && StandingOf(*against) != Standing::kSlower && against->value >= 1;
  }

  static double Overhead(const TurnRecord& turn, double seconds) {
    const EvaluationRecord& e = turn.evaluation;
    return seconds - turn.generate_s - turn.tune_s - e.compile_s - e.verify_s - e.measure_s - e.wait_s;
  }

  bool Cancelled() const { return cancel_ != nullptr && *cancel_; }
  void StopIfCancelled() const {
    if (Cancelled()) throw Interrupted{};
  }
  // Called between two steps: `drain` lets the step in progress finish.
  void StopIfAsked() const {
    StopIfCancelled();
    if (options_.drain != nullptr && *options_.drain) throw Interrupted{};
  }
  void Announce(int turn, const std::string& phase) const {
    if (hooks_.on_phase) hooks_.on_phase(turn, phase);
  }
  void AnnouncePhasesOf(int turn) {
    judge_.set_on_phase([this, turn](const std::string& phase) { Announce(turn, phase); });
  }

  const Problem& problem_;
  const EpisodeOptions options_;
  const SizedProblem sized_;
  Policy& policy_;
  PhaseGate* const gate_;
  Environment& environment_;
  const EpisodeHooks& hooks_;
  const CancelToken* cancel_;
  ConversationContext context_;
  Journal journal_;
  Asker asker_;
  Judge judge_;
  const Clock::time_point start_ = Clock::now();
  const double cache_bytes_ = static_cast<double>(LargestCacheBytes(ReadMachine().caches));
  std::optional<Winner> winner_;
  int last_turn_ = 0;
  bool budget_reached_ = false;
  std::string why_ended_;                                      // before its last turn, in the policy's words
  std::map<int, std::deque<EvaluationRecord>> confirmations_;  // by turn, oldest first
};

}  // namespace

EpisodeRecord RunEpisode(const Problem& problem, Policy& policy, Environment& environment, Store& store,
                         const EpisodeOptions& options, const EpisodeHooks& hooks,
                         const CancelToken* cancel) {
  RequireKindAndPrompts(environment.Facts(), options);
  return Episode(problem, policy, environment, store, options, hooks, cancel).Run(store);
}

}  // namespace kevin
