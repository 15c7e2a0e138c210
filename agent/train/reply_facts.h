#pragma once
// What tells early that a policy goes wrong, reply by reply (Kevin, arXiv 2507.11948, section 6.1). Pure.

#include <cstdint>
#include <span>
#include <string>

namespace kevin {

// Kevin's "Not Okay": the reasoning does not begin with the model's usual word. False where there is no
// reasoning.
bool LacksOpening(const std::string& reasoning, const std::string& opening);

// Share of the runs of 8 tokens that occurred before in the same reply: 0 without repetition, near 1 in a
// loop. 0 for replies of fewer than 9 tokens.
double Repetition(std::span<const int32_t> tokens);

}  // namespace kevin
