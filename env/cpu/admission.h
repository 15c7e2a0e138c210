#pragma once
// Is a problem worth anything? Only if wrong answers fail on it. Each decoy is put through the problem's own
// check on every member of its input mixture; one that passes, and is not truly the right answer, makes the
// problem inadmissible until its inputs are made harder.

#include <nlohmann/json_fwd.hpp>

#include "env/cpu/session.h"

namespace kevin {

// As env/verdict/decoy_result.h has them. Must fail: zeros, a constant, a copy of an input, the output for other
// inputs, for other inputs and these weights, for other weights, for other values of one input, one wrong
// element, half the rows, and what is computed more coarsely than the problem's precision:
//   fp32: inputs rounded to fp16, to bf16
//   fp16: inputs rounded to bf16, to fp8; outputs rounded to bf16
//   bf16: inputs rounded to fp8 of either kind; outputs rounded to fp8
// (fp8 e4m3 and e5m2 by their digits alone, as if scaled to fit.) Must pass: what the reference gives when it
// computes the same once more, and in fp32 when it does so by other algorithms: bounds that refuse those
// would refuse honest kernels. What cannot exist for this problem (no input of the output's shape to copy) is
// left out.
nlohmann::json AdmitProblem(Session& session);

}  // namespace kevin
