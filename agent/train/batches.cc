#include "agent/train/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>

#include "agent/journal.h"
#include "agent/train/model_text.h"
#include "env/error.h"
#include "policies/local/train/batch.h"

namespace kevin {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kCachedEpisodes = 64;
constexpr int kCheckedReplies = 4;  // of a batch: their ids are compared with their text

std::string Where(const LearnTurn& turn) {
  return fmt::format("turn {} of episode {}", turn.turn, turn.episode->id);
}

// Reads each episode of a batch once.
class RecordCache {
 public:
  const TurnRecord& Of(const LearnTurn& turn) {
    std::vector<TurnRecord>& episode = episodes_[turn.episode->id];
    if (episode.empty()) episode = CurrentTurns(*turn.store, turn.episode->id);
    for (const TurnRecord& record : episode) {
      if (record.turn == turn.turn) return record;
    }
    throw Error(ExitCode::kBroken, Where(turn) + " is no longer in " + turn.store->path().string());
  }

  // Drops what was read once it is much; references from Of are invalid then.
  void Shrink() {
    if (episodes_.size() > kCachedEpisodes) episodes_.clear();
  }

 private:
  std::map<std::string, std::vector<TurnRecord>> episodes_;
};

// The tokens of prompts and replies, checked against the model.
class TokenSource {
 public:
  TokenSource(const ModelText& text, bool may_tokenise) : text_(text), may_tokenise_(may_tokenise) {}

  // Empty: none are recorded and none may be made.
  std::vector<int32_t> Prompt(const LearnTurn& turn, const TurnRecord& record) const {
    if (HasIds(record)) return Checked(turn, record, record.prompt_token_ids);
    return may_tokenise_ && text_.encode_prompt ? text_.encode_prompt(record.messages)
                                                : std::vector<int32_t>{};
  }
  std::vector<int32_t> Reply(const LearnTurn& turn, const TurnRecord& record) {
    if (!HasIds(record)) {
      if (!may_tokenise_ || !text_.encode_reply) return {};
      return text_.encode_reply(record.reasoning, record.reply);
    }
    if (text_.decode && checked_++ < kCheckedReplies) CheckText(turn, record);
    return Checked(turn, record, record.token_ids);
  }

 private:
  static bool HasIds(const TurnRecord& record) {
    return !record.prompt_token_ids.empty() && !record.token_ids.empty();
  }

  [[noreturn]] void Mismatch(const LearnTurn& turn, const std::string& why) const {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: {}, so {} is not the model whose tokens were recorded", Where(turn), why,
                            text_.model),
                "train the model that made the records, or one with the same tokenizer; sft trains from the "
                "text where a policy recorded no tokens");
  }

  std::vector<int32_t> Checked(const LearnTurn& turn, const TurnRecord& record,
                               const std::vector<int32_t>& ids) const {
    const std::string& hash = record.model.tokenizer_hash;
    if (!hash.empty() && !text_.tokenizer_hash.empty() && hash != text_.tokenizer_hash)
      Mismatch(turn, "its tokenizer's hash is " + hash.substr(0, 12) + ", not " +
                         text_.tokenizer_hash.substr(0, 12));
    for (const int32_t id : ids) {
      if (id < 0 || (text_.vocabulary > 0 && id >= text_.vocabulary))
        Mismatch(turn, fmt::format("token {} is outside of a vocabulary of {}", id, text_.vocabulary));
    }
    return ids;
  }

  void CheckText(const LearnTurn& turn, const TurnRecord& record) const {
    const std::string reply = record.reply.substr(0, record.reply.find_last_not_of(" \n") + 1);
    // Most servers leave special tokens out of the text, wherever they are.
    for (const bool skip_special : {false, true}) {
      if (text_.decode(record.token_ids, skip_special).find(reply) != std::string::npos) return;
    }
    Mismatch(turn, "its token ids do not spell its reply");
  }

  const ModelText& text_;
  const bool may_tokenise_;
  int checked_ = 0;
};

class Maker {
 public:
  Maker(const Algorithm& algorithm, const ModelText& text, const BatchOptions& options, RecordCache* records)
      : algorithm_(algorithm),
        options_(options),
        records_(*records),
        tokens_(text, algorithm.material != Material::kRollouts) {}

  void AddUnit(const LearnTurns& turns, const Unit& unit) {
    if (algorithm_.material == Material::kPairs) {
      const LearnTurn &prompt = turns.turns()[unit.turns[0]], &chosen = turns.turns()[unit.turns[1]],
                      &rejected = turns.turns()[unit.turns[2]];
      auto better = MakeSample(prompt, chosen), worse = MakeSample(prompt, rejected);
      if (better && worse) Keep(chosen, std::move(*better)), Keep(rejected, std::move(*worse));
      return;
    }
    for (const size_t i : unit.turns) {
      const LearnTurn& turn = turns.turns()[i];
      if (auto sample = MakeSample(turn, turn)) Keep(turn, std::move(*sample));
    }
  }

  // The longest_tokens (LearntData) of the samples that AddUnit would keep of the unit and that are trained on; 0: there
  // are none. Counts what it leaves out in Left() and masked().
  int64_t LongestOf(const LearnTurns& turns, const Unit& unit) {
    if (algorithm_.material == Material::kPairs) {
      const LearnTurn& prompt = turns.turns()[unit.turns[0]];
      const int64_t better = TrainedTokens(MakeSample(prompt, turns.turns()[unit.turns[1]]));
      const int64_t worse = better > 0 ? TrainedTokens(MakeSample(prompt, turns.turns()[unit.turns[2]])) : 0;
      return worse > 0 ? better + worse : 0;
    }
    int64_t longest = 0;
    for (const size_t i : unit.turns)
      longest = std::max(longest, TrainedTokens(MakeSample(turns.turns()[i], turns.turns()[i])));
    return longest;
  }
  const BatchFacts& Left() const { return out_.facts; }
  int64_t masked() const { return masked_; }  // samples that LongestOf saw

  LearnBatch Finish(int64_t step) {
    out_.batch.step = step;
    out_.batch.unit = algorithm_.material == Material::kPairs ? 2 : 1;
    if (algorithm_.whiten) Whiten();
    FinishFacts();
    out_.facts.flat_tasks = static_cast<int64_t>(tasks_.size() - different_.size());
    out_.facts.staleness =
        options_.is_for_step && std::isfinite(oldest_) ? static_cast<double>(step) - 1 - oldest_ : kNone;
    out_.problems.assign(problems_.begin(), problems_.end());
    out_.facts.tasks = static_cast<int64_t>(tasks_.size());
    return std::move(out_);
  }

 private:
  int64_t TrainedTokens(const std::optional<local::Sample>& sample) {
    masked_ += sample && sample->masked;
    return sample && !sample->masked ? sample->tokens() : 0;
  }

  std::optional<local::Sample> MakeSample(const LearnTurn& prompt, const LearnTurn& reply) {
    const TurnRecord &asked = records_.Of(prompt), &answered = records_.Of(reply);
    if (answered.stop_reason == "cancelled") {
      ++out_.facts.voided;
      return std::nullopt;
    }
    local::Sample sample;
    sample.prompt = tokens_.Prompt(prompt, asked);
    sample.completion = tokens_.Reply(reply, answered);
    if (sample.prompt.empty() || sample.completion.empty()) {
      ++out_.facts.without_tokens;
      return std::nullopt;
    }
    if (options_.max_sample_tokens > 0 && sample.tokens() > options_.max_sample_tokens) {
      ++out_.facts.too_long;
      return std::nullopt;
    }
    if (algorithm_.material == Material::kRollouts && !TakeTemperature(answered.sampling, &sample))
      return std::nullopt;
    if (answered.logprobs.size() == sample.completion.size()) sample.sampler_logprobs = answered.logprobs;
    sample.advantage = static_cast<float>(reply.attribution.advantage);
    sample.masked = reply.cut_off && options_.mask_cut_off;
    return sample;
  }

  // False where the distribution is not known, or not one that the trainer computes.
  bool TakeTemperature(const SamplingRecord& sampling, local::Sample* sample) {
    if (!sampling.temperature || !sampling.top_p || !sampling.top_k || !sampling.min_p) {
      ++out_.facts.unknown_sampling;
      return false;
    }
    if (*sampling.top_p < 1 || *sampling.top_k > 0 || *sampling.min_p > 0) {
      ++out_.facts.filtered;
      return false;
    }
    sample->temperature = static_cast<float>(*sampling.temperature);
    out_.facts.greedy += sample->temperature <= 0;
    return sample->temperature > 0;
  }

  void Keep(const LearnTurn& turn, local::Sample sample) {
    const TurnRecord& record = records_.Of(turn);
    BatchFacts& f = out_.facts;
    const double length = static_cast<double>(sample.completion.size());
    f.reward += turn.attribution.score.score, f.value += turn.attribution.value;
    f.reply_tokens += length, f.longest_reply = std::max(f.longest_reply, length);
    f.cut_off += turn.cut_off, f.repetition += Repetition(sample.completion);
    f.correct += turn.correct;
    if (turn.correct && turn.speedup > 0) log_speedup_ += std::log(turn.speedup), ++fast_;
    if (!record.reasoning.empty()) ++reasoned_, not_okay_ += LacksOpening(record.reasoning, options_.opening);
    if (const auto version = VersionOfModel(record.model.name))
      oldest_ = std::min(oldest_, static_cast<double>(*version));
    tasks_.insert(turn.task);
    if (turn.attribution.advantage != 0) different_.insert(turn.task);
    problems_.insert(turn.problem->id);
    out_.turns.push_back({turn.episode->id, turn.problem->id, record.model.name, record.evaluation.outcome,
                          record.stop_reason, record.reply, turn.turn, turn.correct, turn.speedup,
                          turn.attribution.score.score, turn.attribution.value, turn.attribution.advantage,
                          static_cast<int64_t>(sample.completion.size())});
    out_.batch.samples.push_back(std::move(sample));
  }

  void Whiten() {
    double mean = 0, square = 0;
    const auto n = static_cast<double>(out_.batch.samples.size());
    for (const local::Sample& s : out_.batch.samples) mean += s.advantage / n;
    for (const local::Sample& s : out_.batch.samples)
      square += (s.advantage - mean) * (s.advantage - mean) / n;
    const double deviation = std::sqrt(square);
    if (deviation < 1e-9) return;
    for (local::Sample& s : out_.batch.samples)
      s.advantage = static_cast<float>((s.advantage - mean) / deviation);
  }

  void FinishFacts() {
    BatchFacts& f = out_.facts;
    f.samples = static_cast<int64_t>(out_.batch.samples.size());
    const auto n = static_cast<double>(f.samples);
    for (const local::Sample& s : out_.batch.samples) f.advantage += std::abs(s.advantage);
    for (double* mean :
         {&f.reward, &f.value, &f.correct, &f.advantage, &f.reply_tokens, &f.cut_off, &f.repetition})
      *mean = f.samples > 0 ? *mean / n : kNone;
    f.speedup = fast_ > 0 ? std::exp(log_speedup_ / fast_) : kNone;
    f.not_okay = reasoned_ > 0 ? not_okay_ / reasoned_ : kNone;
  }

  const Algorithm& algorithm_;
  const BatchOptions& options_;
  RecordCache& records_;
  TokenSource tokens_;
  LearnBatch out_;
  std::set<int> tasks_, different_;
  double oldest_ = std::numeric_limits<double>::infinity();
  std::set<std::string> problems_;
  double log_speedup_ = 0, not_okay_ = 0;
  int fast_ = 0, reasoned_ = 0;
  int64_t masked_ = 0;
};

constexpr size_t kRun = 8;

}  // namespace

// Turns from a distribution that the trainer does not compute.
static int64_t WithoutDistribution(const BatchFacts& facts) {
  return facts.unknown_sampling + facts.greedy + facts.filtered;
}

// Some of `samples` with the sampler's log-probabilities.
static std::vector<local::Sample> ProbesOf(const std::vector<local::Sample>& samples, uint64_t seed,
                                           int64_t step) {
  std::vector<local::Sample> probes;
  for (const size_t i : local::Shuffled(samples.size(), seed, static_cast<uint64_t>(step))) {
    if (probes.size() == local::kMostProbes) break;
    if (!samples[i].sampler_logprobs.empty()) probes.push_back(samples[i]);
  }
  return probes;
}

Units WithoutUnusable(const LearnTurns& turns, Units units, const Algorithm& algorithm, const ModelText& text,
                      const BatchOptions& options) {
  RecordCache records;
  Maker maker(algorithm, text, options, &records);
  std::vector<Unit> kept, without_tokens;
  for (Unit& unit : units.units) {
    const BatchFacts before = maker.Left();
    const int64_t masked_before = maker.masked();
    const int64_t longest = maker.LongestOf(turns, unit);
    const BatchFacts& after = maker.Left();
    if (longest > 0) {
      units.longest_tokens = std::max(units.longest_tokens, longest);
      kept.push_back(std::move(unit));
    } else if (after.without_tokens > before.without_tokens) {
      without_tokens.push_back(std::move(unit));
    } else if (WithoutDistribution(after) == WithoutDistribution(before)) {
      ++(after.too_long > before.too_long ? units.too_long
         : maker.masked() > masked_before ? units.cut_off
                                          : units.voided);
    }
    records.Shrink();
  }
  // Where there are no others they stay: BatchMaker refuses them with the reason.
  const bool has_others = !kept.empty();
  units.units = std::move(has_others ? kept : without_tokens);
  if (has_others) units.without_tokens = static_cast<int64_t>(without_tokens.size());
  units.unknown_sampling = maker.Left().unknown_sampling, units.greedy = maker.Left().greedy;
  units.filtered = maker.Left().filtered;
  return units;
}

LearnBatch BatchMaker::MakeForStep(int64_t step) const {
  RecordCache records;
  Unit everything;
  for (size_t i = 0; i < turns_.turns().size(); ++i) everything.turns.push_back(i);
  Algorithm counting = algorithm_;
  counting.material = Material::kRollouts, counting.whiten = false;
  Maker counter(counting, text_, options_, &records), maker(algorithm_, text_, options_, &records);
  counter.AddUnit(turns_, everything);
  LearnBatch counted = counter.Finish(step);
  for (const size_t unit : local::Shuffled(units_.units.size(), options_.seed, static_cast<uint64_t>(step)))
    maker.AddUnit(turns_, units_.units[unit]);
  LearnBatch made = maker.Finish(step);
  made.batch.may_be_idle = true;
  // Imitated and preferred replies are not compared at the temperature of sampling.
  if (algorithm_.material != Material::kRollouts || made.batch.samples.empty())
    made.batch.probes = ProbesOf(counted.batch.samples, options_.seed, step);
  counted.facts.advantage = made.facts.advantage;
  made.facts = counted.facts, made.problems = std::move(counted.problems);
  made.turns = std::move(counted.turns);
  return made;
}

LearnBatch BatchMaker::Make(int64_t step) const {
  if (options_.is_for_step) return MakeForStep(step);
  RecordCache records;
  Maker maker(algorithm_, text_, options_, &records);
  const auto per_step = static_cast<size_t>(algorithm_.train.units_per_step);
  for (const size_t unit : UnitsOfStep(units_.units.size(), per_step, step, options_.seed))
    maker.AddUnit(turns_, units_.units[unit]);
  LearnBatch made = maker.Finish(step);
  if (made.batch.samples.empty() && made.facts.without_tokens > 0) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("the {} turns of step {} have no token ids, which {} needs", made.facts.without_tokens,
                    step, algorithm_.name),
        "collect with a policy that records them (local:DIR, or --token-ids with vLLM or SGLang), or use sft");
  }
  return made;
}

bool LacksOpening(const std::string& reasoning, const std::string& opening) {
  const size_t start = reasoning.find_first_not_of(" \t\r\n");
  return start != std::string::npos && reasoning.compare(start, opening.size(), opening) != 0;
}

double Repetition(std::span<const int32_t> tokens) {
  if (tokens.size() <= kRun) return 0;
  const size_t runs = tokens.size() - kRun + 1;
  std::unordered_set<std::u32string> seen;
  const std::u32string text(tokens.begin(), tokens.end());
  for (size_t i = 0; i < runs; ++i) seen.insert(text.substr(i, kRun));
  return 1 - static_cast<double>(seen.size()) / static_cast<double>(runs);
}

}  // namespace kevin
