#pragma once
// START HERE for the runner. The protocol between the evaluator and the GPU runner: one frame each way at a time over
// a Unix socket, a JSON object a frame. The first request carries the descriptors of the shared memory.
//
//   {"open": {inputs_bytes, outputs_bytes, slots, tensors, trusted_cubin}} + 2 descriptors   -> {"ok"}
//   {"load": launch plan}                                                                    -> {"ok"}
//   {"run": slot, "repeat": 0}                                                               -> {"us": t}
//       one timed call
//   {"run": slot, "repeat": n, "prepared": b, "called": b}                                   -> {"ok"}
//       n times over the slots in turn: the preparation of a timed call, a call, or both
//   {"probe": [out, in, vectors, blocks]}                                                    -> {"us": t}
//   {"canary": [out, words, seed]}, {"unload": true}                                         -> {"ok"}
//
// Every request may be answered {"fault": text, "fatal": bool}. Answers are trusted only as far as they are
// checked: device code of a candidate has run in that process.

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "env/process/shared_memory.h"

namespace kevin {

inline constexpr size_t kMaxFrameBytes = size_t{256} << 20;

// False when the other side has closed.
bool SendFrame(int socket, const nlohmann::json& frame, std::span<const int> descriptors = {});
// Empty when the other side has closed, sent no JSON, or sent nothing for `timeout_s` (< 0: no limit).
std::optional<nlohmann::json> ReceiveFrame(int socket, double timeout_s,
                                           std::vector<Fd>* descriptors = nullptr);

}  // namespace kevin
