#pragma once
// Streams of values for tests, the same in every run.

#include <cstdint>

#include "env/process/generator.h"

namespace kevin {

// Of the member seed % kMixtureMembers. Different seeds have different keys.
inline ValueStream StreamOf(uint64_t seed) {
  ValueStream stream;
  stream.key.words = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 1, 2, 3, 4, 5, 6};
  stream.member = static_cast<int>(seed % kMixtureMembers);
  return stream;
}

}  // namespace kevin
