#include "agent/rollout/work_spec.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "env/problem/text.h"

namespace kevin {
namespace {

using nlohmann::json;

uint64_t SeedOf(const CollectionSpec& spec, const CollectionSpec::Task& task, const std::string& policy,
                int number) {
  const std::string digest =
      Sha256Hex(fmt::format("episode {} {} {} {}", spec.seed, task.problem, policy, number));
  return std::stoull(digest.substr(0, 16), nullptr, 16);
}

json RequestOf(const CollectionSpec& spec) {
  json tasks = json::array();
  for (const auto& task : spec.tasks) tasks.push_back({task.problem, task.problem_hash});
  json request = {{"tasks", tasks},      {"policies", spec.policies},         {"episodes", spec.episodes},
                  {"turns", spec.turns}, {"seed", std::to_string(spec.seed)}, {"kind", spec.kind},
                  {"note", spec.note}};
  request.update(WorkloadToJson(spec.workload));
  if (!spec.purpose.empty()) request["purpose"] = spec.purpose;
  // Left out where it is the usual one, so that runs begun by an earlier program are found again.
  if (spec.workload.precision == "fp32") request.erase("precision");
  return request;
}

std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

std::string ToJson(const CollectionSpec& spec) {
  json all = RequestOf(spec);
  all["model_options"] = json::parse(spec.model_options);
  all["windows"] = json::object();
  for (const auto& [policy, window] : spec.windows)
    all["windows"][policy] = {window.max_tokens, window.prompt_tokens};
  return Dump(all);
}

CollectionSpec CollectionFromJson(const std::string& text) {
  const json all = json::parse(text);
  CollectionSpec spec;
  for (const json& task : all.at("tasks")) spec.tasks.push_back({task.at(0), task.at(1)});
  spec.policies = all.at("policies").get<std::vector<std::string>>();
  spec.episodes = all.at("episodes");
  spec.turns = all.at("turns");
  spec.seed = std::stoull(all.at("seed").get<std::string>());
  spec.kind = all.at("kind");
  spec.workload = WorkloadFromJson(all);
  spec.note = all.at("note");
  spec.purpose = all.value("purpose", "");
  if (!all.contains("model_options")) return spec;  // begun by an earlier program
  spec.model_options = Dump(all.at("model_options"));
  for (const auto& [policy, window] : all.at("windows").items())
    spec.windows[policy] = {window.at(0), window.at(1)};
  return spec;
}

std::string KeyOf(const CollectionSpec& spec) { return Sha256Hex(Dump(RequestOf(spec))); }

std::vector<std::string> EpisodesOf(const CollectionSpec& spec) {
  std::vector<std::string> episodes;
  for (int number = 0; number < spec.episodes; ++number) {
    for (const auto& task : spec.tasks) {
      for (const std::string& policy : spec.policies) {
        episodes.push_back(json{
            {"problem", task.problem},
            {"problem_hash", task.problem_hash},
            {"policy", policy},
            {"number", number},
            {"seed", std::to_string(SeedOf(spec, task, policy, number))},
            {"turns",
             spec.turns}}.dump());
      }
    }
  }
  return episodes;
}

EpisodeSpec EpisodeFromJson(const std::string& text) {
  const json all = json::parse(text);
  return {all.at("problem"),
          all.at("problem_hash"),
          all.at("policy"),
          all.at("number"),
          std::stoull(all.at("seed").get<std::string>()),
          all.at("turns")};
}

}  // namespace kevin
