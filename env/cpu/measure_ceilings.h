#pragma once
// What programs reach on this CPU (env/ceilings.h): memory bandwidth and fp32 multiply-adds with all threads of a
// candidate, on the same kind of pages as its inputs and outputs.
//
// Many short windows; the best one in which all threads ran counts. A window is quiet if every thread had its core for
// all of it. A measurement ends once 0.3 s of quiet windows brought nothing better, or after 1.5 s; there are three.

#include "env/ceilings.h"

namespace kevin {

// The caller holds the lock of the CPU exclusively. Throws Error(kBroken) where there is not enough memory.
Ceilings MeasureCpuCeilings(int threads);

// Raised with every change after which a value may differ.
inline constexpr int kCpuCeilingsVersion = 1;

}  // namespace kevin
