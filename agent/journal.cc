#include "agent/journal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "agent/ranking.h"
#include "agent/records.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {
namespace fs = std::filesystem;
namespace {

// The verdict changes, the candidate stays.
void ReplaceVerdict(EvaluationRecord* verdict, const EvaluationRecord& now) {
  verdict->outcome = now.outcome;
  verdict->reason = now.reason;
  verdict->correct = now.correct;
  verdict->speedup = now.speedup;
  verdict->score = now.score;
}

}  // namespace

bool TakeCurrentVerdict(Store& store, TurnRecord* turn) {
  EvaluationRecord& own = turn->evaluation;
  if (own.superseded_by.empty()) return false;
  auto now = store.FindEvaluation(own.superseded_by);
  if (!now) return false;
  // A comparison was made under the rules of its time.
  if (now->rules_version == own.rules_version) {
    now->against_best = own.against_best;
    now->against_best_turn = own.against_best_turn;
  }
  // The verdict may be on another text with the same machine code.
  now->candidate_hash = own.candidate_hash, now->kind = own.kind, now->source = own.source;
  own = std::move(*now);
  return true;
}

std::vector<TurnRecord> CurrentTurns(Store& store, const std::string& episode) {
  std::vector<TurnRecord> turns = store.LoadTurns(episode);
  for (TurnRecord& turn : turns) TakeCurrentVerdict(store, &turn);
  return turns;
}

void Journal::Begin(const EpisodeRecord& episode, const ProblemRecord& problem) {
  episode_ = store_.FindEpisode(store_.BeginEpisode(episode, problem));
  output_.set_episode(episode_.id);
}

void Journal::Resume(const std::string& episode, const std::string& run, int more_turns) {
  store_.ResumeEpisode(episode, run, more_turns);
  episode_ = store_.FindEpisode(episode);
  output_.set_episode(episode_.id);
  turns_ = store_.LoadTurns(episode_.id);
  for (TurnRecord& turn : turns_) {
    if (TakeCurrentVerdict(store_, &turn)) turn.feedback = feedback_(turn, turn.evaluation);
  }
  WriteLeader();
}

const TurnRecord& Journal::turn(int number) const { return const_cast<Journal*>(this)->MutableTurn(number); }

TurnRecord& Journal::MutableTurn(int number) {
  const auto found =
      std::find_if(turns_.begin(), turns_.end(), [&](const auto& t) { return t.turn == number; });
  if (found == turns_.end()) {
    throw Error(ExitCode::kBroken, fmt::format("episode {}: no turn {}", episode_.id, number));
  }
  return *found;
}

void Journal::WriteSource(TurnRecord* turn) const {
  const EvaluationRecord& e = turn->evaluation;
  if (!e.source.empty()) turn->source_path = output_.WriteTurn(turn->turn, e.kind, e.source);
}

void Journal::Append(TurnRecord turn, const std::vector<std::string>& supersedes,
                     const EvaluationRecord* audit) {
  turn.evaluation.id = store_.AppendTurn(episode_.id, turn, supersedes, audit);
  Overrule(supersedes, turn.evaluation);
  turns_.push_back(std::move(turn));
  WriteLeader();
}

void Journal::AppendEvaluation(int number, const EvaluationRecord& evaluation) {
  const TurnRecord& turn = MutableTurn(number);
  std::vector<std::string> contradicted;
  if (!evaluation.correct && turn.evaluation.correct) {
    contradicted = store_.VerdictsUnderKey(turn.evaluation.key);
  }
  store_.AppendEvaluation(episode_.id, number, evaluation, contradicted);
  if (contradicted.empty()) return;
  Overrule(contradicted, evaluation);
  WriteLeader();
}

void Journal::Overrule(const std::vector<std::string>& evaluations, const EvaluationRecord& now) {
  const auto named = [&](const std::string& id) {
    return !id.empty() && std::find(evaluations.begin(), evaluations.end(), id) != evaluations.end();
  };
  for (TurnRecord& turn : turns_) {
    EvaluationRecord& verdict = turn.evaluation;
    if (!named(verdict.id) && !named(verdict.cached_from)) continue;
    ReplaceVerdict(&verdict, now);
    turn.feedback = feedback_(turn, now);
  }
}

void Journal::KeepRequest(int turn, const RequestAttempt& attempt) {
  RequestRecord record = ToRecord(attempt, turn);
  if (attempt.outcome == "sent" || attempt.outcome == "cached") {
    requests_ = turn == request_turn_ ? requests_ + 1 : 1;
    request_turn_ = turn;
    open_attempt_ = store_.BeginRequest(episode_.id, record);
  } else {
    record.attempt = open_attempt_;
    store_.EndRequest(episode_.id, record);
  }
}

void Journal::SetSeconds(int number, double seconds, double overhead_s) {
  TurnRecord& turn = MutableTurn(number);
  turn.seconds = seconds;
  turn.overhead_s = overhead_s;
}

const TurnRecord* Journal::Leader() const { return LeaderOf(turns_); }
std::vector<int> Journal::Ranking() const { return RankingOf(turns_); }

// The best file exists from the first correct kernel on, so that a killed episode leaves one.
void Journal::WriteLeader() {
  const TurnRecord* leader = Leader();
  const std::optional<int> number = leader ? std::optional(leader->turn) : std::nullopt;
  if (number == in_best_file_) return;
  if (leader) {
    best_path_ = output_.WriteBest(leader->evaluation.kind, leader->evaluation.source);
  } else {
    output_.Remove(best_path_);
  }
  in_best_file_ = number;
}

void Journal::Finish(EpisodeState state, const std::string& reason, const std::optional<Winner>& winner,
                     double seconds) {
  EpisodeEnd end;
  end.state = state;
  end.state_reason = reason;
  end.seconds = seconds;
  if (winner) {
    const EvaluationRecord& best = turn(winner->turn).evaluation;
    end.best_turn = winner->turn;
    end.best_speedup = winner->speedup.value;
    end.best_speedup_low = winner->speedup.low;
    end.best_speedup_high = winner->speedup.high;
    end.best_path = output_.WriteBest(best.kind, best.source);
  } else if (const TurnRecord* leader = Leader()) {
    end.best_turn = leader->turn;
    end.best_path = best_path_;
  }
  store_.FinishEpisode(episode_.id, end);
}

std::optional<Winner> ConfirmWinner(const RankingFunction& ranking, const ConfirmTurn& confirm) {
  std::set<int> dropped;
  while (true) {
    std::vector<int> order = ranking();
    std::erase_if(order, [&](int turn) { return dropped.count(turn) > 0; });
    if (order.empty()) return std::nullopt;
    int best = order.front();
    for (size_t i = 1; i < order.size() && i < kMaxConfirmed; ++i) {
      const auto challenger = confirm(order[i], best);
      if (!challenger) {
        dropped.insert(order[i]);
      } else if (challenger->against && challenger->against->value > 1) {
        best = order[i];
      }
    }
    if (const auto confirmed = confirm(best, std::nullopt)) return Winner{best, confirmed->speedup};
    dropped.insert(best);
  }
}

namespace {

[[noreturn]] void ThrowUnwritable(const fs::path& folder, const std::error_code& error) {
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: cannot write kernels into it: {}", folder.string(), error.message()),
              "choose another folder with --out DIR");
}

}  // namespace

void EpisodeOutput::RequireWritable(const fs::path& folder) {
  std::error_code error;
  fs::path there = fs::absolute(folder).lexically_normal();
  if (!there.has_filename()) there = there.parent_path();  // "out/"
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  error.clear();
  if (!fs::is_directory(there, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (!error && ::access(there.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) ThrowUnwritable(folder, error);
}

EpisodeOutput::EpisodeOutput(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!error && ::access(folder_.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) ThrowUnwritable(folder_, error);
}

std::string EpisodeOutput::WriteTurn(int turn, const std::string& kind, const std::string& source) const {
  return Write(fmt::format("{}.{}", turn, FileEnding(kind)), source);
}

std::string EpisodeOutput::WriteBest(const std::string& kind, const std::string& source) const {
  return Write("best." + FileEnding(kind), source);
}

void EpisodeOutput::Remove(const std::string& path) const {
  std::error_code ignored;
  fs::remove(path, ignored);
}

std::string EpisodeOutput::Write(const std::string& name, const std::string& source) const {
  const fs::path path = folder_ / FileName(episode_) / FileName(name);
  const fs::path partial = path.string() + ".partial";
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  errno = 0;
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(source.data(), static_cast<std::streamsize>(source.size()));
  file.close();
  if (!file) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    fs::remove(partial, error);
    throw Error(ExitCode::kBroken, fmt::format("{}: cannot write: {}", path.string(), reason),
                "free space or choose another folder with --out DIR; completed turns are in the database");
  }
  fs::rename(partial, path, error);
  if (error)
    throw Error(ExitCode::kBroken, fmt::format("{}: cannot write: {}", path.string(), error.message()));
  return path.string();
}

}  // namespace kevin
