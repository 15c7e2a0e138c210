#pragma once
// How a trainer is talked to: frames of MessagePack on a stream, eight bytes of length (little-endian) before
// each. Both ends are of the same build.
//
//   to the trainer                  from it
//   {"open": options}               {"opened": {"steps", "parameters", "trained", "rank", "ranks"}}
//   {"step": batch}                 {"figures": figures}
//   {"save": true}                  {"saved": folder}      a checkpoint
//   {"finish": true}                {"saved": folder}      the model itself
//                                   {"error": {"code", "what", "next"}} instead of any of these
//
// Why a program of its own (kevin-trainer) at the end of a socket: `kevin` links no torch, starts in
// milliseconds, and outlives a trainer that runs out of memory; the trainer sees no database. A process that
// already holds the model (the model server) can serve the same frames from the same weights
// (serve_training.h), so that sampling and training share one copy.

#include <nlohmann/json.hpp>
#include <optional>

#include "policies/local/train/batch.h"

namespace kevin::local {

nlohmann::json ToJson(const Batch& batch);
Batch BatchFromJson(const nlohmann::json& json);    // throws nlohmann::json::exception
nlohmann::json ToJson(const StepFigures& figures);  // NaN is null
StepFigures StepFiguresFromJson(const nlohmann::json& json);

// False when the other side is gone.
bool WriteFrame(int file, const nlohmann::json& message);
// Nothing at the end of the stream. Throws Error(kBroken) for what is no frame.
std::optional<nlohmann::json> ReadFrame(int file);

}  // namespace kevin::local
