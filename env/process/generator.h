#pragma once
// Input values from the keystream of env/process/random.h: element i is made from its word i alone, so that any
// part can be drawn by any thread, and the GPU draws the same values (env/gpu/runner/trusted_kernels.cc). Fast
// enough (>= 1 G floats/s) to give every timed call new inputs.

#include <array>
#include <cstddef>
#include <cstdint>

#include "env/problem/problem.h"
#include "env/process/random.h"

namespace kevin {

// kDefault: the problem's own distributions. kKernelBench: U[0,1) for all floating inputs except parameters
// and signs.
enum class InputMode { kDefault, kKernelBench };

// Fills `elements` values of `spec.dtype`. A 16-bit type gets float32's values, rounded and clamped to its
// range. kMixture is the member of the stream, which is that of one tensor (OfTensor); a structure is imposed
// after drawing. In the last member TensorSpec::row_shift moves rows of `row_elements`. `threads` share the
// work. Throws Error(kBadRequest) for a dtype that cannot be drawn.
void FillTensor(const TensorSpec& spec, InputMode mode, const ValueStream& stream, int64_t elements,
                int threads, void* data);

// The members of the mixture, for reports and tests.
inline constexpr int kMixtureMembers = 4;
const char* MixtureMemberName(int member);

// Members of successive pairs: each of four pairs has another one, in an order drawn anew. A kernel can take longer for some
// values than for others (eager's softmax of peaked scores, in level3/31 on a GPU: 16 ms where it takes 7), so that four pairs of
// which all happen to have those values would tell another speed-up.
class MixtureOrder {
 public:
  int Next(SecretRandom& random);

 private:
  std::array<int, kMixtureMembers> order_{};
  size_t left_ = 0;
};

// Overwrites about one element in 256, at random places and at least one, with other elements of the same
// tensor. An audit uses it to distinguish a call that began when it was asked for from work done in advance:
// a comparison of samples needs hundreds of them. The tensor keeps the properties that its file states: the
// distribution of its values and the structure of a square matrix.
void Rearrange(const TensorSpec& spec, int64_t elements, SecretRandom& random, void* data);

}  // namespace kevin
