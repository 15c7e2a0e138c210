#pragma once
// Input values from a counter. Element i of a tensor is a function of (seed, i) alone, so that any part can
// be drawn by any thread. Fast enough (>= 1 G floats/s) to give every timed call new inputs.

#include <cstdint>
#include <random>

#include "env/problem/problem.h"

namespace kevin {

// kDefault: the problem's own distributions. kKernelBench: U[0,1) for all floating inputs except parameters
// and signs.
enum class InputMode { kDefault, kKernelBench };

// Fills `elements` values of `spec.dtype`. A 16-bit type gets float32's values, rounded and clamped to its
// range. kMixture chooses a member by the seed; a structure is imposed after drawing. `threads` share the
// work. Throws Error(kBadRequest) for a dtype that cannot be drawn.
void FillTensor(const TensorSpec& spec, InputMode mode, uint64_t seed, int64_t elements, int threads,
                void* data);

// The members of the mixture, for reports and tests: member = seed % kMixtureMembers.
inline constexpr int kMixtureMembers = 4;
const char* MixtureMemberName(int member);

// An unpredictable seed from the system.
uint64_t SecretSeed();

// What GPU memory is poisoned with: a NaN in every floating-point type, an out-of-range index in integers.
// On a CPU: env/process/poison.h.
inline constexpr uint32_t kPoison = 0x7fd57fd5;

// Overwrites about one element in 256, at random places and at least one, with other elements of the same
// tensor. An audit uses it to distinguish a call that began when it was asked for from work done in advance:
// whoever compares samples must compare hundreds. The tensor keeps the properties that its file states: the
// distribution of its values and the structure of a square matrix.
void Rearrange(const TensorSpec& spec, int64_t elements, std::mt19937_64& random, void* data);

}  // namespace kevin
