#pragma once
// Is a problem worth anything? Only if wrong answers fail on it. Each decoy is put through the problem's own
// check on every member of its input mixture; one that passes, and is not truly the right answer, makes the
// problem inadmissible until its inputs are made harder.

#include <nlohmann/json_fwd.hpp>

#include "env/cpu/session.h"

namespace kevin {

// As env/decoy_result.h has them. Must fail: zeros, a constant, a copy of an input, the output for other
// inputs, for other inputs and these weights, for other weights, for other values of one input, one wrong
// element, half the rows, inputs rounded to fp16 and to bf16. Must pass: what the reference gives when it
// computes the same once more. What cannot exist for this problem (no input of the output's shape to copy) is
// left out.
nlohmann::json AdmitProblem(Session& session);

}  // namespace kevin
