#pragma once
// Episodes and turns as text, for `kevin show` and the end of `kevin run`. Pure
// functions; every text ends in a line end.

#include <optional>
#include <string>
#include <vector>

#include "trajectories/records.h"

namespace kevin {

// One line per episode: episode, when (local time), problem, policy, turns, correct, best speed-up, state.
std::string EpisodeTable(const std::vector<EpisodeRecord>& episodes);

// One line per turn: turn, outcome, speed-up with interval, GB/s, error, what changed. The error of a
// measured turn is the largest deviation from the truth, that of any other turn its reason.
std::string TurnTable(const std::vector<TurnRecord>& turns);

// The request, the device and the result of an episode; one fact a line.
std::string EpisodeSummary(const EpisodeRecord& episode);

// Everything of one turn: the prompt, its requests, the reply, the source, the evaluations (the turn's own
// first), and the feedback.
std::string TurnDetails(const TurnRecord& turn, const std::vector<EvaluationRecord>& evaluations,
                        const std::vector<RequestRecord>& requests = {});

// The trials of a turn's knobs as a table; empty for none.
std::string TrialTable(const std::vector<KnobTrial>& trials);

std::string CostText(const std::optional<double>& usd);  // "$0.0123", "cost unknown"

}  // namespace kevin
