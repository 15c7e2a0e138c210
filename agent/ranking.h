#pragma once
// Which of an episode's correct kernels is the fastest, from comparisons in the same pairs.
//
// Speed-ups over eager that were measured in different turns share no pairs: eager itself, the load of the machine and
// its clock change between them by more than kernels differ. So each correct turn is timed against the best one so far
// in the same pairs (EvaluationRecord::against_best), and the lead changes only where the 99 % interval of that ratio
// lies above 1. Pure; any thread.

#include <optional>
#include <string>
#include <vector>

#include "trajectories/records.h"

namespace kevin {

bool IsCorrectTurn(const TurnRecord& turn);

// a times b and 1 over a; the intervals of independent measurements add up in quadrature on the logarithm.
Ratio Product(const Ratio& a, const Ratio& b);
Ratio Inverse(const Ratio& a);

// By how much turn `a` is faster than turn `b`: the product of the comparisons that lead from one to the other, which
// is a single one where `b` was the best when `a` was made. nullopt where there is no such chain. An incorrect turn may
// be part of a chain: it was timed all the same. `turns` are those of one episode, in order.
std::optional<Ratio> CompareTurns(const std::vector<TurnRecord>& turns, int a, int b);

// The turn that leads; null where none is correct. The first correct turn leads until a later one is faster. A turn
// without a comparison (of an episode of an older format) is compared by the speed-ups over eager. One with a stored
// verdict never takes the lead: its time belongs to another process.
const TurnRecord* LeaderOf(const std::vector<TurnRecord>& turns);

// The leader, then the correct turns that may be faster than it, the most probable first: not distinguishable, with a
// ratio above 1. A turn that is the same (within 2 %) is not worth a confirmation. Of equal candidates only the first.
std::vector<int> RankingOf(const std::vector<TurnRecord>& turns);

}  // namespace kevin
