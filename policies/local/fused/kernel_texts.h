#pragma once
// kernels/*.cu, built into the program.

namespace kevin::local {

extern const char* const kCommonKernels;
extern const char* const kAttendKernels;
extern const char* const kProductKernels;
extern const char* const kDecodeOneKernels;
extern const char* const kDecodeBatchKernels;
extern const char* const kDrawKernels;

}  // namespace kevin::local
