#pragma once
// START HERE for the runner. The protocol between the evaluator and the GPU runner: one frame each way at a time over
// a Unix socket, a JSON object a frame. The first request carries the descriptors of the shared memory.
//
//   {"open": {inputs_bytes, outputs_bytes, slots, tensors, trusted_bytes}} + 2 descriptors,
//       then, in a runner's first request, the trusted kernels' module in so many bytes                  -> {"ok"}
//   {"load": launch plan}                                                                    -> {"ok"}
//   {"run": slot, "called": b, "keeps_globals": b, "seed": s}, then 4 bytes  -> {"ready"}, then 1 byte, {"us": t}
//       one call, or an empty one (CandidateModule::EnqueueEmpty). `seed` is that of poison and shared memory.
//       Ready: the device has prepared the call and waits. The 4 bytes, a number that is new, let it begin; the
//       byte comes when the device has written that number behind the call. t is by the events.
//   {"operations": slot, "seed": s}                                         -> {"us": [t, ...]}
//       one call with an event after each operation of the plan, for a diagnosis.
//   {"probe": [out, in, vectors, blocks], "seed": s}, then 4 bytes       -> the same
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

// The bytes between frames, where microseconds count: the receiver spins for a while before it sleeps. False
// when the other side has closed, or sent nothing for `timeout_s` (< 0: no limit).
bool SendBytes(int socket, const void* data, size_t bytes);
bool AwaitBytes(int socket, double timeout_s, void* data, size_t bytes);

}  // namespace kevin
