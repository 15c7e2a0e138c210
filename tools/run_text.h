#pragma once
// What `kevin run` prints: a line for each turn, and the best kernel at the end.

#include <optional>
#include <string>

#include "tools/baselines.h"
#include "trajectories/store.h"

namespace kevin {

// "turn 2/8  measured 1.5x (1.4x to 1.6x), faster  3.1 s (generate 0.0, compile 0.9, ...)". No line end.
std::string TurnLine(const TurnRecord& turn, const std::string& label);

// The best turn with its confirmed speed-up, over the baseline too where there is one, and its shapes; then the
// pairs that decided: of the best turn, of turns that were measured again, of turns whose speed-up reads higher than
// the best one. Lines of the summary, each with its end.
std::string BestText(Store& store, const EpisodeRecord& episode, const std::optional<Baseline>& baseline);

}  // namespace kevin
