#pragma once
// New values for an input that somebody may already have looked at: an audit's way to tell a call that began
// when it was asked for from work done ahead.

#include <cstdint>
#include <random>

#include "env/problem/problem.h"

namespace kevin {

// Overwrites up to a quarter of the elements with others of the same tensor, so that all that its file says
// of it stays true: values are of the same distribution, and of a structured one, a square matrix, zeros stay
// zeros and mirrored elements equal.
void Rearrange(const TensorSpec& spec, int64_t elements, std::mt19937_64& random, void* data);

}  // namespace kevin
