#include "tools/stored_sampling.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "env/error.h"

namespace kevin {
namespace {

// One table for both directions: `act(name, member)` for every option.
template <typename Options, typename Act>
void ForEach(Options& o, const Act& act) {
  act("token-ids", o.token_ids);
  act("request-json", o.request_json);
  act("temperature", o.temperature);
  act("top-p", o.top_p);
  act("top-k", o.top_k);
  act("max-tokens", o.max_tokens);
  act("stop", o.stop);
  act("reasoning-effort", o.reasoning_effort);
  act("thinking-tokens", o.thinking_tokens);
  act("context", o.context);
}

template <typename Value>
void Put(nlohmann::json* all, const char* name, const std::optional<Value>& value) {
  if (value) (*all)[name] = *value;
}
template <typename Value>
void Put(nlohmann::json* all, const char* name, const Value& value) {
  if (!value.empty() && nlohmann::json(value) != nlohmann::json("off")) (*all)[name] = value;
}

template <typename Value>
void Take(const nlohmann::json& value, std::optional<Value>* to) {
  *to = value.get<Value>();
}
template <typename Value>
void Take(const nlohmann::json& value, Value* to) {
  *to = value.get<Value>();
}

std::string ValueText(const nlohmann::json& all, const std::string& name) {
  return all.contains(name) ? all.at(name).dump() : "not given";
}

std::string SamplingDifference(const nlohmann::json& there, const nlohmann::json& here,
                               const std::set<std::string>& names) {
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    const std::string theirs = ValueText(there, name), ours = ValueText(here, name);
    if (theirs != ours) parts.push_back(fmt::format("--{} is {} there and {} here", name, theirs, ours));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::set<std::string> NamesIn(const nlohmann::json& all) {
  std::set<std::string> names;
  for (const auto& [name, value] : all.items()) names.insert(name);
  return names;
}

}  // namespace

std::string SamplingJson(const PolicyOptions& options) {
  nlohmann::json all = nlohmann::json::object();
  ForEach(options, [&](const char* name, const auto& value) { Put(&all, name, value); });
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string SamplingDifference(const std::string& there, const std::string& here) {
  const nlohmann::json theirs = nlohmann::json::parse(there), ours = nlohmann::json::parse(here);
  std::set<std::string> names = NamesIn(theirs);
  names.merge(NamesIn(ours));
  return SamplingDifference(theirs, ours, names);
}

PolicyOptions WithStoredSampling(PolicyOptions options, const std::string& stored, const std::string& owner) {
  const nlohmann::json theirs = nlohmann::json::parse(stored),
                       ours = nlohmann::json::parse(SamplingJson(options));
  if (const std::string difference = SamplingDifference(theirs, ours, NamesIn(ours)); !difference.empty()) {
    throw Error(ExitCode::kBadRequest, fmt::format("{} samples otherwise: {}", owner, difference),
                "leave these options out: they are stored with it");
  }
  ForEach(options, [&](const char* name, auto& value) {
    if (theirs.contains(name)) Take(theirs.at(name), &value);
  });
  return options;
}

}  // namespace kevin
