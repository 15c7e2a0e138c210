#pragma once
// Turns -> batches for the trainer. A batch is a pure function of the records and the step, so that a resumed
// run learns from the same batches.
//
//   LearnTurns turns({...});                           // the turns and their attribution
//   Units units = MakeUnits(algorithm, turns, {});     // what is learnt from together
//   BatchMaker maker(turns, units, algorithm, text, {});
//   LearnBatch batch = maker.Make(step);
//
// Token ids are the sampled ones and are never made again from text; only imitation and preferences may
// tokenise a reply that was recorded without ids.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/train/algorithm.h"
#include "agent/train/model_text.h"
#include "agent/train/turns.h"
#include "policies/local/train/batch.h"

namespace kevin {

struct BatchOptions {
  uint64_t seed = 0;
  bool mask_cut_off = true;       // replies cut off by the length limit are not trained on
  int64_t max_sample_tokens = 0;  // longer samples are left out; 0: any length
  std::string opening = "Okay";   // the usual first word of the model's reasoning
  // The turns were made for this step: facts and LearnBatch::turns cover all of them, not only those that are
  // learnt from, a batch without samples is no error, and one whose samples do not tell the gap to the sampler has
  // probes.
  bool is_for_step = false;
};

// Means over the batch's samples; NaN without samples.
struct BatchFacts {
  int64_t samples = 0, tasks = 0;
  int64_t without_tokens = 0, voided = 0, too_long = 0;  // left out
  // Rollouts only, left out too: the distribution that the tokens were drawn from is not known (SamplingRecord), or
  // there was none (temperature 0), or it is a part of the model's (top_p, top_k or min_p), which the trainer does not
  // compute. No ratio to the sampler can be formed then.
  int64_t unknown_sampling = 0, greedy = 0, filtered = 0;
  double reward = 0, value = 0;  // score and return of a turn
  double correct = 0;            // share of turns
  double speedup = 0;            // of correct turns, geometric mean
  double advantage = 0;          // mean absolute
  double reply_tokens = 0, longest_reply = 0;
  double cut_off = 0, not_okay = 0, repetition = 0;  // shares
  int64_t flat_tasks = 0;                            // tasks whose turns do not differ; is_for_step only
  double staleness = 0;  // most steps learnt since a turn was made; is_for_step only
};

// One turn of a batch, for the log.
struct BatchTurn {
  std::string episode, problem, model, outcome, stop_reason, reply;
  int turn = 0;
  bool correct = false;
  double speedup = 0, score = 0, value = 0, advantage = 0;  // NaN: unknown
  int64_t tokens = 0;                                       // of the reply
};

struct LearnBatch {
  local::Batch batch;
  BatchFacts facts;
  std::vector<std::string> problems;  // ids, each once
  std::vector<BatchTurn> turns;
};

// Removes the units from which no batch gets a sample that is trained on, and counts them in too_long (longer than
// max_sample_tokens; for rollouts all turns of the task), cut_off (by the length limit, with mask_cut_off), voided (the
// reply was cancelled) and without_tokens (none are recorded; such units stay where there are no others). Counts the
// turns that are left out for their sampling, also in units that stay. Call it before steps are formed: a step of such units only would have nothing to train on. Reads all records once, and
// tokenises those without token ids. Fills in longest_tokens.
Units WithoutUnusable(const LearnTurns& turns, Units units, const Algorithm& algorithm, const ModelText& text,
                      const BatchOptions& options);

class BatchMaker {
 public:
  // `turns` and `units` must outlive it.
  BatchMaker(const LearnTurns& turns, const Units& units, Algorithm algorithm, ModelText text,
             BatchOptions options)
      : turns_(turns),
        units_(units),
        algorithm_(std::move(algorithm)),
        text_(std::move(text)),
        options_(options) {}

  // Throws Error(kBadRequest) where the records do not fit the algorithm or the model.
  LearnBatch Make(int64_t step) const;

 private:
  LearnBatch MakeForStep(int64_t step) const;

  const LearnTurns& turns_;
  const Units& units_;
  const Algorithm algorithm_;
  const ModelText text_;
  const BatchOptions options_;
};

// Early signs of a collapsing policy (Kevin, arXiv 2507.11948, section 6.1), for one reply.

// "Not Okay" of arXiv 2507.11948: the reasoning does not begin with `opening`. False without reasoning.
bool LacksOpening(const std::string& reasoning, const std::string& opening);

// The share of runs of 8 tokens that occurred before in the same reply: 0 without repetition, near 1 in a
// loop. 0 for replies of fewer than 9 tokens.
double Repetition(std::span<const int32_t> tokens);

}  // namespace kevin
