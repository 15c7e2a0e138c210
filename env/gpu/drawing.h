#pragma once
// How an input's values are drawn on the device: as env/cpu/generator.h draws them, by the trusted kernel
// `kevin_fill`.

#include <cstdint>

#include "env/cpu/generator.h"
#include "env/gpu/driver.h"
#include "env/problem.h"

namespace kevin {

struct Drawing {
  int distribution = 0;  // the trusted kernel's enumerators
  float scale = 1, offset = 0;
};

// `member` of the input mixture (0 to kMixtureMembers - 1), for inputs that are drawn from it.
Drawing DrawingOf(const TensorSpec& spec, InputMode mode, uint64_t member);

// Enqueues the filling of `elements` floats. `fill` is the trusted kernel. Throws DriverError.
void FillOnDevice(CuHandle fill, CuHandle stream, CuDevicePtr data, int64_t elements, const Drawing& drawing,
                  uint64_t seed);

}  // namespace kevin
