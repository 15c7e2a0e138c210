#pragma once
// The result of judging one candidate, as plain values: outcome, measured ratios, timed samples, results of single
// shapes. A bad kernel is an outcome, never an exception. JSON both ways. Pure; every part of Kevin may include this.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace kevin {

// The version of the rules of verdict and clock (env/verdict/README.md; not Workload::rules, the choice of --rules).
// It is part of every evaluation's key and stands in every record. Raise it with every change after which a verdict
// or a time may come out differently. Verdicts stored before there was a version have 1.
inline constexpr int kRulesVersion = 12;
// The last version that closed a way to a false verdict: training and reports leave out verdicts under older rules.
inline constexpr int kSecurityRulesVersion = 12;

// The reply held no usable source.
struct ParseFailed {
  std::string message;
};

// The file of the diagnostics of a wrong signature of `launch`: "required-signature:1:17: error: ...". Their line is not one
// of the candidate.
inline constexpr std::string_view kSignatureFile = "required-signature";

struct CompileFailed {
  std::string log;         // compiler output, trimmed
  std::string where = {};  // of several shapes: at which one ("at mine/2 (N = 1001)"); else empty
};

// The candidate broke a rule: deferred work, an impossible time, ...
struct Refused {
  std::string reason;
};

// A signal or an early exit, and in which phase.
struct Crashed {
  std::string message;
};

// A phase took longer than its limit, confirmed once on an idle machine. limit_s is 0 where it is unknown.
struct TimedOut {
  std::string phase;
  double limit_s = 0;
};

// Incorrect: where, and by how much.
struct Wrong {
  std::string message;
  double max_error = 0, error_bound = 0;
};

// As a sequential test decided; the ratio beside it is estimated from other pairs. Where the number of pairs was fixed from the
// start, what the interval of the ratio says (env/verdict/README.md).
enum class Verdict { kFast, kSlow, kSame, kAmbiguous };
const char* VerdictName(Verdict verdict);  // "fast", "slow", "same", "ambiguous"

// A ratio of times with its 99 % interval; above 1 the candidate is faster.
struct Ratio {
  double value = 0, low = 0, high = 0;
  double log_se = 0;             // standard error of log(value)
  int pairs = 0, processes = 0;  // fixed pairs, and the runner processes that they span
};

struct Measured {
  Ratio speedup;                          // against the reference (eager)
  std::optional<Ratio> against_start;     // against the user's own kernel (--from), where there is one
  Verdict verdict = Verdict::kAmbiguous;  // against the reference
  Verdict verdict_against_start = Verdict::kAmbiguous;  // meaningful only with against_start
  double candidate_us = 0, reference_us = 0;            // medians per call
  double gb_per_s = 0, gflop_per_s = 0;                 // by the usual counts; 0: the problem states no cost
  // A bound of the judge: a shorter time is refused as impossible. No kernel comes near it, and nobody is told it as
  // the least possible time; env/ceilings.h has what can be reached. 0: unknown.
  double floor_us = 0;
  double max_error = 0, error_bound = 0;  // at the element nearest to its bound
};

using Outcome = std::variant<ParseFailed, CompileFailed, Refused, Crashed, TimedOut, Wrong, Measured>;
const char* OutcomeName(const Outcome& outcome);    // "parse_failed", ..., "measured"
std::string OutcomeReason(const Outcome& outcome);  // one line; empty for measured

// score = 0.3 * correct + speed-up * correct (Kevin, arXiv 2507.11948, section 3.2); 0 for all but Measured.
double Score(const Outcome& outcome);

// The result at one of the shapes of a size set with several (env/verdict/shapes.h).
struct ShapeResult {
  std::string size;                        // "mine/2", as in Problem::sizes
  std::map<std::string, int64_t> symbols;  // values of the shape symbols
  double weight = 1;
  Outcome outcome;
  int processes = 0;  // behind its samples; Sample::process is numbered on from shape to shape
  double peak_gb_per_s = 0, peak_gflop_per_s = 0;  // as in Evaluation, for this shape
};

// One timed half of a pair.
struct Sample {
  int process = 0;  // number of the runner process
  int pair = 0;
  std::string phase;  // "sequential", "fixed", "confirm"
  std::string side;   // "candidate", "reference", "start"
  int calls = 0;
  double total_us = 0;  // of all calls together
};

// The value of every knob of a text (env/knobs/knobs.h), in the order of their declarations.
using KnobSetting = std::vector<std::pair<std::string, int64_t>>;

// What a short look at one setting of a candidate's knobs gave (env/knobs/tune.h). It chooses the setting that is
// judged, and enters no estimate.
struct KnobTrial {
  KnobSetting setting;
  std::string outcome;                 // OutcomeName; "measured": correct in one call. Empty: nothing was run
  std::string reason;                  // OutcomeReason
  std::optional<double> candidate_us;  // per call; of several shapes their weighted geometric mean
  bool stopped =
      false;  // it was clearly slower than the fastest, so that it was timed for less long than others
  bool chosen = false;
  double seconds = 0;  // wall time
};

// {"TILE": 64, "UNROLL": 4}; null for no knobs. As text: the JSON object, empty for no knobs; unreadable text gives none.
nlohmann::ordered_json SettingToJson(const KnobSetting& setting);
std::string SettingToText(const KnobSetting& setting);
KnobSetting SettingFromText(const std::string& text);
const KnobTrial* ChosenTrial(const std::vector<KnobTrial>& trials);  // null: none

// An outcome as flat fields: the columns of the store and the fields of JSON, under the same names. Empty or
// nullopt: unknown, or meaningless for this outcome.
struct OutcomeFields {
  std::string outcome;  // OutcomeName
  std::string reason;   // OutcomeReason
  bool compiled = false, correct = false;
  std::string verdict;  // "fast", ...; empty unless measured
  std::optional<Ratio> speedup, against_start;
  std::optional<double> candidate_us, reference_us, gb_per_s, gflop_per_s, floor_us;
  std::optional<double> max_error, error_bound;
  double score = 0;                       // the raw reward
  std::string failed_shape;               // CompileFailed::where
  std::string timeout_phase;              // TimedOut::phase
  std::optional<double> timeout_limit_s;  // TimedOut::limit_s
};

OutcomeFields FieldsOf(const Outcome& outcome);
// The inverse. `message` is the whole text of a failure (a compiler's log); empty: the fields' one-line reason.
Outcome OutcomeOf(const OutcomeFields& fields, const std::string& message = "");

// The fields in a fixed order, null where unknown or infinite, and `message`. Reading takes an absent field as
// unknown; throws nlohmann::json::exception.
nlohmann::ordered_json OutcomeToJson(const Outcome& outcome);
Outcome OutcomeFromJson(const nlohmann::ordered_json& json);
nlohmann::ordered_json FieldsToJson(const OutcomeFields& fields);  // without `message`

// A list of objects: `size`, `symbols`, `weight`, the fields of the outcome, `sample_processes`, the peaks.
nlohmann::ordered_json ShapesToJson(const std::vector<ShapeResult>& shapes);
std::vector<ShapeResult> ShapesFromJson(const nlohmann::ordered_json& json);

// The same as text, for the store: empty for no shapes. Unreadable text gives none.
std::string ShapesToText(const std::vector<ShapeResult>& shapes);
std::vector<ShapeResult> ShapesFromText(const std::string& text);

}  // namespace kevin
