#include "agent/train/rank_locks.h"

#include <set>
#include <utility>

namespace kevin {

RankLocks::RankLocks(Terms terms, std::function<void()> meet)
    : terms_(std::move(terms)), meet_(std::move(meet)) {}

void RankLocks::Hold() {
  std::set<std::string> locks;
  if (!terms_.is_shared && !terms_.own.empty()) locks.insert(terms_.own);
  if (terms_.is_shared && terms_.is_first) locks.insert(terms_.all.begin(), terms_.all.end());
  held_.emplace(locks, nullptr);
  meet_();
}

void RankLocks::Release() {
  if (terms_.is_shared) meet_();  // the others compute under rank 0's locks
  held_.reset();
}

}  // namespace kevin
