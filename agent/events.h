#pragma once
// The JSON objects that `--json` prints, one a line. Field names are fixed: scripts rely on them. Unknown is null,
// never 0; only `measured` has a `speedup`. `event` comes first. Invalid UTF-8 (a candidate may print anything) is
// replaced. `shapes`: of a size set with several shapes, the list of their results (agent/shape_records.h);
// `speedup` and the other numbers are then their means (env/verdict/shapes.h).

#include <string>
#include <vector>

#include "agent/json.h"
#include "trajectories/records.h"

namespace kevin {

// Beside the common fields: `episode`, `turn`, `against_best*` (the ratio to the best turn so far), `reply_form`, `generate_s`, `overhead_s`, `summary`, and the use of a server:
// tokens, `requests`, `cost_usd`.
Json TurnEvent(const TurnRecord& turn, const EpisodeRecord& episode);

// `kevin bench`. `total_s` is the wall time of the whole evaluation, from which overhead_s is taken. `trials`: of the
// candidate's knobs, before it.
Json EvaluationEvent(const EvaluationRecord& evaluation, const std::string& problem,
                     const std::string& source_path, double total_s,
                     const std::vector<KnobTrial>& trials = {});

// A setting of a candidate's knobs: `problem`, `setting`, `outcome` (null: not tried), `reason`, `candidate_us`,
// `stopped`, `chosen`, `seconds`. Those of a turn also `episode` and `turn`.
Json TrialEvent(const KnobTrial& trial, const std::string& problem);
Json TrialEvent(const KnobTrial& trial, const TurnRecord& turn, const EpisodeRecord& episode);
std::string TrialLines(const TurnRecord& turn, const EpisodeRecord& episode);  // of all of a turn's trials

// The last line of `kevin run`.
Json EpisodeEvent(const EpisodeRecord& episode);

// With its line end. Hidden characters (env/printable.h) are \u escapes: the same value in any terminal.
std::string ToLine(const Json& event);

}  // namespace kevin
