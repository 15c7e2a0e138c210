#pragma once
// Input values from a counter: element i of a tensor depends on nothing but (seed, i), so that any part can
// be drawn by any thread, fast enough (>= 1 G floats/s) to give every timed call inputs that nobody has seen.

#include <cstdint>

#include "env/problem/problem.h"

namespace kevin {

// What an evaluation asked for: the problem's own distributions, or KernelBench's U[0,1) for all floating
// inputs that are neither parameters nor signs.
enum class InputMode { kDefault, kKernelBench };

// Fills `elements` values of `spec.dtype`; a 16-bit type gets float32's values rounded, cut to its range.
// kMixture picks a member by the seed, so that several seeds see several distributions; a structure is
// imposed afterwards. `threads` share the work. Throws Error(kBadRequest) for a dtype that cannot be drawn.
void FillTensor(const TensorSpec& spec, InputMode mode, uint64_t seed, int64_t elements, int threads,
                void* data);

// The mixture's members, for reports and tests: member = seed % kMixtureMembers.
inline constexpr int kMixtureMembers = 4;
const char* MixtureMemberName(int member);

// A seed nobody could know before this call.
uint64_t SecretSeed();

// Fills memory with the poison pattern: a NaN for every floating-point type, an absurd index for integers.
inline constexpr uint32_t kPoison = 0x7fd57fd5;
void FillPoison(void* data, int64_t bytes, int threads);

}  // namespace kevin
