#pragma once
// Admission on the GPU: env/cpu/admission.h's decoys at sizes that only fit there. They are made on the
// device, in the output memory of one slot, so that nothing but one slot and one fp64 truth has to fit.

#include <vector>

#include "env/gpu/judge/gpu_session.h"
#include "env/verdict/decoy_result.h"

namespace kevin {

// Decoys "computed from rounded inputs" or "from other values" come from eager here, not from the truth. In
// 16 bits nothing tells here whether a coarse answer lies within the outputs' rounding: one that passes
// counts against the problem, and its reason says so. Shares the GPU's lock. Throws DriverError, Error.
std::vector<DecoyResult> AdmitOnGpu(GpuSession& session);

// What it takes until a candidate could be judged, and what is then in use.
struct GpuPreparation {
  double session_s = 0;    // reference compiled, memory laid out, peaks measured, eager warm
  double draw_s = 0;       // inputs and weights of one slot, anew
  double reference_s = 0;  // eager, once
  double truth_s = 0;      // fp64, once
  int slots = 0;
  int64_t used_bytes = 0, total_bytes = 0;  // of the GPU; what torch once took, it keeps
};

// Everything but session_s.
GpuPreparation PrepareOnGpu(GpuSession& session);

}  // namespace kevin
