#pragma once
// Drawing a token from logits. The kernels on a GPU follow the same rule in the same order; tokens differ
// only where rounding decides.

#include <cstdint>
#include <span>

#include "policies/local/generate/model_runner.h"

namespace kevin::local {

// In [0, 1), 53 bits, from the counter generator Philox4x32-10: its key is the seed (low word first), its
// counter the position (low word first, then two zeros), and its first two words make the number: the top 53
// bits of (second << 32 | first).
constexpr double UniformAt(uint64_t seed, uint64_t position) {
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t counter[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    for (int word = 0; word < 4; ++word) counter[word] = next[word];
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  const uint64_t bits = (uint64_t{counter[1]} << 32 | counter[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// Draws the token of `position` (counted from 0 over prompt and answer). The filters keep whole ties, so what
// they keep is all that is at least as likely as some token:
//   top_k: the k-th most likely; top_p: the one with which the most likely ones first reach top_p of what
//   top_k kept; min_p: min_p times the most likely one's probability.
// The token is the first in vocabulary order at which the sum of the kept probabilities exceeds
// UniformAt(seed, position) times their total. With temperature 0 it is the first of the most likely, with
// logprob 0.
//
// A logit that is not finite is never drawn; if none is finite, the id is -1. Any thread. About 0.1 ms for
// 152,000 logits, with top_p of a flat distribution up to 3 ms.
SampledToken Sample(std::span<const float> logits, const TokenSampling& sampling, int position);

}  // namespace kevin::local
