#pragma once
// kernels/rows.cu, built into the program.

namespace kevin::local {

extern const char* const kRowsKernels;

}  // namespace kevin::local
