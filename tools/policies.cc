#include "tools/policies.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "env/error.h"
#include "policies/replay/replay_policy.h"
#include "policies/search/search_policy.h"

namespace kevin {
namespace {

ChosenPolicy MakeReplay(const std::string& prefix, Store& store) {
  const EpisodeRecord episode = store.FindEpisode(prefix);
  std::vector<std::string> replies;
  for (const TurnRecord& turn : store.LoadTurns(episode.id)) {
    if (turn.turn > 0) replies.push_back(turn.reply);
  }
  if (replies.empty()) {
    throw Error(ExitCode::kBadRequest, fmt::format("episode {}: it has no turns to replay", episode.id),
                "kevin show lists the episodes");
  }
  const int turns = static_cast<int>(replies.size());
  return {MakeReplayPolicy("replay:" + episode.id, std::move(replies)), turns};
}

}  // namespace

ChosenPolicy MakePolicy(const std::string& name, Store& store) {
  constexpr std::string_view kReplay = "replay:";
  if (name == "search") return {MakeSearchPolicy(), std::nullopt};
  if (name.starts_with(kReplay)) return MakeReplay(name.substr(kReplay.size()), store);
  throw Error(ExitCode::kBadRequest, fmt::format("policy \"{}\": no such policy", name),
              "use --policy search, or --policy replay:EPISODE to re-run a stored episode");
}

}  // namespace kevin
