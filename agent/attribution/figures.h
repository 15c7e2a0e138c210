#pragma once
// Figures of a database as attribution takes them.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "trajectories/figures.h"

namespace kevin {

// One per episode of `figures`, in their order. Episodes are of one task when run, problem's text, policy,
// kind, size, inputs, precision and TF32 are equal; the device is left out, so that a machine's GPUs work
// together.
std::vector<AttributedEpisode> ToAttributed(const Figures& figures);

// Score, return and advantage in full, for attributions.parameters.
nlohmann::ordered_json SchemeJson(const Scheme& scheme);

}  // namespace kevin
