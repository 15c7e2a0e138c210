#include "agent/winner.h"

#include <algorithm>
#include <set>

namespace kevin {
namespace {

void SortBestFirst(std::vector<CorrectTurn>* turns) {
  std::stable_sort(turns->begin(), turns->end(),
                   [](const CorrectTurn& a, const CorrectTurn& b) { return a.speedup > b.speedup; });
  std::set<std::string> seen;
  std::erase_if(*turns, [&](const CorrectTurn& c) { return !seen.insert(c.candidate_hash).second; });
}

}  // namespace

std::optional<Winner> ConfirmWinner(std::vector<CorrectTurn> turns, const ConfirmTurn& confirm) {
  SortBestFirst(&turns);
  std::optional<Winner> best;
  std::set<int> dropped;
  int confirmed = 0;
  for (const CorrectTurn& turn : turns) {
    if (best && (confirmed == kMaxConfirmed || turn.speedup <= best->speedup.value)) break;
    const auto ratio = confirm(turn.turn);
    if (!ratio) {
      dropped.insert(turn.turn);
      continue;
    }
    ++confirmed;
    if (!best || ratio->value > best->speedup.value) best = Winner{turn.turn, *ratio};
  }
  if (confirmed <= 1) return best;
  if (const auto again = confirm(best->turn)) return Winner{best->turn, *again};
  dropped.insert(best->turn);
  std::erase_if(turns, [&](const CorrectTurn& c) { return dropped.count(c.turn) > 0; });
  return ConfirmWinner(std::move(turns), confirm);
}

}  // namespace kevin
