#pragma once
// The numbers of many episodes at once, without their texts, for reports and attributions. A million turns take some
// seconds and 150 MB. Unknown numbers are NaN.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "env/workload.h"

namespace kevin {

inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

// In the order in which a candidate passes through them; `kParseFailed` has no source.
enum class OutcomeKind : uint8_t {
  kParseFailed,
  kCompileFailed,
  kRefused,
  kCrashed,
  kTimedOut,
  kWrong,
  kMeasured
};
const char* OutcomeKindName(OutcomeKind kind);  // "parse_failed", ..., as in the database

// How a reply held its source (turns.reply_form).
enum class ReplyForm : uint8_t { kUnknown, kWhole, kFile, kDiff, kFunction };
inline constexpr size_t kReplyForms = 5;
const char* ReplyFormName(ReplyForm form);  // "whole", "file", ..., as in the database; "" for kUnknown

// One turn with its current verdict: a superseded one is replaced by the one that overrides it.
struct TurnFigures {
  int32_t turn = 0;   // 0: the user's own kernel (--from)
  int32_t model = 0;  // index into Figures::models
  OutcomeKind outcome = OutcomeKind::kParseFailed;
  bool compiled = false, correct = false;
  bool cached = false;   // repeats an earlier verdict
  bool cut_off = false;  // stop_reason 'length'
  ReplyForm reply_form = ReplyForm::kUnknown;
  bool shared_gpu = false;    // another process computed on the GPU during its measurement
  int16_t rules_version = 1;  // of the rules that gave the verdict
  double speedup = kNotKnown, log_se = kNotKnown;
  double score = 0;  // the raw reward
  double generate_s = 0, compile_s = 0, verify_s = 0, measure_s = 0, wait_s = 0, overhead_s = 0, seconds = 0;
  double prompt_tokens = kNotKnown, completion_tokens = kNotKnown;
};

struct EpisodeFigures {
  std::string id, run, policy, kind, device, state, started_at;
  Workload workload;
  int problem = 0;  // index into Figures::problems
  int turns_asked = 0;
  int best_turn = -1;                                        // confirmed winner; -1: none
  double best_speedup = kNotKnown, best_log_se = kNotKnown;  // from its confirmation
  int best_rules_version = 0;                                // of that; 0: the confirmation is not known
  bool best_shared_gpu = false;                              // of that, as in TurnFigures
  double seconds = 0;
  double device_s = 0;  // that a GPU was held, confirmations and audits included; 0: none or unknown
  // Requests to servers, also those of turns that failed. cost_usd: of those whose cost is known.
  int64_t requests = 0, unknown_costs = 0;
  double cost_usd = 0;
  size_t first_turn = 0, turn_count = 0;  // in Figures::turns, ordered by turn
};

struct ProblemFigures {
  std::string hash, id, name;
  std::vector<std::string> families, flags;
};

struct Figures {
  std::vector<ProblemFigures> problems;  // by id
  std::vector<EpisodeFigures> episodes;  // by id
  std::vector<TurnFigures> turns;        // by episode, then turn
  std::vector<std::string> models;
};

struct RunFigures {
  std::string id, command, started_at, finished_at;  // finished_at is empty while it runs
  int64_t episodes = 0;                              // that it began
};

// --- What `kevin attribute` keeps. ---
struct AttributionRecord {
  std::string id;                  // ULID; filled by SaveAttribution
  std::string scheme, parameters;  // parameters: JSON object
  std::vector<std::string> runs;
  int64_t groups = 0, flat_groups = 0;
};

struct TurnAttributionRecord {
  size_t episode = 0;  // index into the ids given beside it
  int turn = 0;
  double score = 0, score_se = 0, value = 0, advantage = 0;  // value: the return
};

}  // namespace kevin
