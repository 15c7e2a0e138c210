#pragma once
// Episodes and turns as text for people: what `kevin show` prints and what `kevin run` ends with. Pure
// functions; every text ends in a line end.

#include <optional>
#include <string>
#include <vector>

#include "trajectories/records.h"

namespace kevin {

// One line per episode: episode, when (local time), problem, policy, turns, correct, best speed-up, state.
std::string EpisodeTable(const std::vector<EpisodeRecord>& episodes);

// One line per turn: turn, outcome, speed-up with interval, GB/s, error, what changed. The error of a
// measured turn is the largest deviation from the truth, that of another its reason.
std::string TurnTable(const std::vector<TurnRecord>& turns);

// What an episode was asked, on what, and what came of it; one fact a line.
std::string EpisodeSummary(const EpisodeRecord& episode);

// Everything of one turn: what was sent, by which requests, the reply, the source, its evaluations (the
// turn's own first), and what was answered.
std::string TurnDetails(const TurnRecord& turn, const std::vector<EvaluationRecord>& evaluations,
                        const std::vector<RequestRecord>& requests = {});

std::string CostText(const std::optional<double>& usd);  // "$0.0123", "cost unknown"

}  // namespace kevin
