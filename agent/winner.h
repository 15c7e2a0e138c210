#pragma once
// The best of many noisy measurements reads too fast (best of 8 equal kernels: 1.02x to 1.03x at 2 % noise),
// so the winner is measured again and only that counts. Pure; the measuring is the caller's.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

struct CorrectTurn {  // one that may win
  int turn = 0;
  std::string candidate_hash;  // of equal candidates only the first is considered
  double speedup = 0;          // from the turn itself; used to choose, never reported
};

struct Winner {
  int turn = 0;
  Ratio speedup;  // from a confirmation that took no part in choosing
};

// Measures that turn's candidate again; nullopt when it is no longer right.
using ConfirmTurn = std::function<std::optional<Ratio>(int turn)>;

inline constexpr int kMaxConfirmed = 3;

// Confirms the leader. Where the confirmed leader falls behind what the next one measured, that one is
// confirmed too, up to kMaxConfirmed; the best of several confirmed ones is measured once more for its
// numbers, because it was chosen by the confirmations. nullopt: no turn was still right.
std::optional<Winner> ConfirmWinner(std::vector<CorrectTurn> turns, const ConfirmTurn& confirm);

}  // namespace kevin
