#pragma once
// How a trainer is talked to: frames of MessagePack on a stream, eight bytes of length (little-endian) before
// each. Both ends are of the same build.
//
//   to the trainer                  from it
//   {"open": options}               {"opened": {"steps", "trained", "rank", "ranks"}}
//   {"open": ..., "sample": {...}}  the same with "url", "model", "context": requests are answered there, as
//                                   OpenAI's API has it, from the weights being trained (sampled_model.h)
//   {"step": batch}                 {"figures": figures}
//   {"save": true}                  {"saved": folder}      a checkpoint
//   {"finish": true}                {"saved": folder}      the model itself
//   {"restore": checkpoint}         {"restored": steps}    its weights, to sample from
//                                   {"error": {"code", "what", "next"}} instead of any of these
//
// Why a program of its own (kevin-trainer) at the end of a socket: `kevin` links no torch, starts in
// milliseconds, and outlives a trainer that runs out of memory; the trainer sees no database.

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
