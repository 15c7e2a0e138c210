#include "agent/train/rank_meeting.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/events.h"
#include "agent/machine.h"
#include "env/error.h"
#include "env/process/machine.h"

namespace kevin {

std::string RankMeeting::LineOf(const Terms& terms, const std::string& host, const std::string& lock) {
  return ToLine(Json{
      {"host", host}, {"done", terms.done}, {"steps", terms.steps}, {"place", terms.place}, {"lock", lock}});
}

RankMeeting::Met RankMeeting::Compare(const std::vector<std::string>& all, int own_rank) {
  Met met;
  const Json own = Json::parse(all.at(static_cast<size_t>(own_rank)));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Json other = Json::parse(all[rank]);
    if (other.at("done") != own.at("done") || other.at("steps") != own.at("steps"))
      throw Error(ExitCode::kBadRequest,
                  fmt::format("rank {} is at step {} of {}, rank {} at step {} of {}", own_rank,
                              own.at("done").get<int64_t>(), own.at("steps").get<int64_t>(), rank,
                              other.at("done").get<int64_t>(), other.at("steps").get<int64_t>()),
                  local::kShareOutput);
    // Not by the device's name: each of them may see one GPU alone, which it calls cuda:0.
    if (static_cast<int>(rank) < own_rank && other.at("host") == own.at("host") &&
        other.at("lock") == own.at("lock"))
      met.holds_lock = false;
    met.locks.push_back(other.at("lock"));
    met.lines.push_back(fmt::format("rank {} of {} on {}: {}", rank, all.size(),
                                    other.at("host").get<std::string>(),
                                    other.at("place").get<std::string>()));
  }
  return met;
}

RankMeeting::Met RankMeeting::Meet(const Terms& terms) {
  if (ranks_ == 1) return {};
  return Compare(trainer_.Exchange(LineOf(terms, HostName(), LockNameOf(terms.device))), rank_);
}

std::vector<std::string> RankMeeting::Gather(const std::string& mine) {
  return ranks_ == 1 ? std::vector<std::string>() : trainer_.Exchange(mine);
}

bool RankMeeting::Agree(int64_t step, const std::optional<LearnBatch>& batch) {
  if (ranks_ == 1) return batch.has_value();
  const std::vector<std::string> all = trainer_.Exchange(batch ? local::FingerprintOf(batch->batch) : "");
  if (std::find(all.begin(), all.end(), "") != all.end()) return false;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error(
        ExitCode::kBroken,
        fmt::format("step {}: rank {} has read other records than rank 0, so that the ranks would learn from "
                    "different batches",
                    step, rank),
        "give all ranks the same database, name the runs to learn from (--run), and let collections end; then "
        "--resume");
  }
  return true;
}

bool RankMeeting::AllGoOn(bool mine) {
  if (ranks_ == 1) return mine;
  const std::vector<std::string> all = trainer_.Exchange(mine ? "on" : "end");
  return std::find(all.begin(), all.end(), "end") == all.end();
}

bool RankMeeting::DecidedByFirst(bool mine) {
  return ranks_ == 1 ? mine : trainer_.Exchange(mine ? "yes" : "no").front() == "yes";
}

}  // namespace kevin
