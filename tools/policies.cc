#include "tools/policies.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "env/error.h"
#include "policies/replay/replay_policy.h"
#include "policies/search/search_policy.h"
#include "tools/local_model.h"

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
  ChosenPolicy chosen;
  chosen.policy = MakeReplayPolicy("replay:" + episode.id, std::move(replies));
  chosen.turns = turns;
  return chosen;
}

// How `client`, which asks the server, is to sample.
ChosenPolicy Sampled(RemotePolicy& client, const PolicyOptions& options) {
  const auto window = options.context ? options.context : client.FindWindow();
  const remote::Price* price = client.FindPrice();
  const WindowShare share =
      ShareWindow(options, window, price == nullptr ? std::nullopt : price->max_output_tokens);
  ChosenPolicy chosen;
  chosen.sampling = SamplingFor(options, share.max_tokens);
  chosen.prompt_token_budget = share.prompt_tokens;
  client.RequireSampling(chosen.sampling);
  return chosen;
}

ChosenPolicy MakeRemote(const std::string& spec, const PolicyOptions& options) {
  std::unique_ptr<RemotePolicy> policy = MakeRemotePolicy(RemoteOptionsFor(spec, options));
  ChosenPolicy chosen = Sampled(*policy, options);
  chosen.policy = std::move(policy);
  return chosen;
}

ChosenPolicy MakeLocal(const std::string& spec, const PolicyOptions& options) {
  std::unique_ptr<local::LocalPolicy> policy = StartLocalPolicy(spec, options);
  ChosenPolicy chosen = Sampled(policy->client(), options);
  chosen.policy = std::move(policy);
  return chosen;
}

}  // namespace

ChosenPolicy MakePolicy(const std::string& name, Store& store, const PolicyOptions& options) {
  if (remote::IsRemoteSpec(name)) return MakeRemote(name, options);
  if (local::IsLocalSpec(name)) return MakeLocal(name, options);
  if (!options.first_given.empty()) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{} is for language models; the policy is {}", options.first_given, name),
        "omit it, or use --policy openai:MODEL, openai-responses:MODEL, anthropic:MODEL or local:DIR");
  }
  constexpr std::string_view kReplay = "replay:";
  if (name == "search") {
    ChosenPolicy chosen;
    chosen.policy = MakeSearchPolicy();
    return chosen;
  }
  if (name.starts_with(kReplay)) return MakeReplay(name.substr(kReplay.size()), store);
  throw Error(ExitCode::kBadRequest, fmt::format("policy \"{}\": no such policy", name),
              "use --policy search, openai:MODEL, openai-responses:MODEL, anthropic:MODEL, local:DIR, or "
              "replay:EPISODE to re-run a stored episode");
}

}  // namespace kevin
