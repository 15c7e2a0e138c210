#include "agent/winner.h"

#include <algorithm>
#include <set>

namespace kevin {
namespace {

void SortBestFirst(std::vector<Contender>* contenders) {
  std::stable_sort(contenders->begin(), contenders->end(),
                   [](const Contender& a, const Contender& b) { return a.speedup > b.speedup; });
  std::set<std::string> seen;
  std::erase_if(*contenders, [&](const Contender& c) { return !seen.insert(c.candidate_hash).second; });
}

}  // namespace

std::optional<Winner> ConfirmWinner(std::vector<Contender> contenders, const ConfirmTurn& confirm) {
  SortBestFirst(&contenders);
  std::optional<Winner> best;
  std::set<int> dropped;
  int confirmed = 0;
  for (const Contender& contender : contenders) {
    if (best && (confirmed == kMaxConfirmed || contender.speedup <= best->speedup.value)) break;
    const auto ratio = confirm(contender.turn);
    if (!ratio) {
      dropped.insert(contender.turn);
      continue;
    }
    ++confirmed;
    if (!best || ratio->value > best->speedup.value) best = Winner{contender.turn, *ratio};
  }
  if (confirmed <= 1) return best;
  if (const auto again = confirm(best->turn)) return Winner{best->turn, *again};
  dropped.insert(best->turn);
  std::erase_if(contenders, [&](const Contender& c) { return dropped.count(c.turn) > 0; });
  return ConfirmWinner(std::move(contenders), confirm);
}

}  // namespace kevin
