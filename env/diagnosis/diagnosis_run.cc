#include "env/diagnosis/diagnosis_run.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace kevin {
namespace {

using nlohmann::json;

json NumberOrNull(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

std::optional<double> NumberIn(const json& whole, const char* name) {
  return whole.at(name).is_number() ? std::optional(whole.at(name).get<double>()) : std::nullopt;
}

}  // namespace

json DiagnosisRunToJson(const DiagnosisRun& run) {
  const ThreadShares& where = run.found.where;
  json addresses = json::array();
  for (const auto& [address, count] : run.addresses) addresses.push_back({address, count});
  json counters;
  if (run.found.counters)
    counters = {run.found.counters->instructions_per_cycle, run.found.counters->cache_misses_per_call};
  return {{"threads", run.found.threads},
          {"cold_us", NumberOrNull(run.found.cold_us)},
          {"warm_us", NumberOrNull(run.found.warm_us)},
          {"one_thread_us", NumberOrNull(run.found.one_thread_us)},
          {"page_faults", NumberOrNull(run.found.page_faults)},
          {"where", {where.samples, where.kernel, where.waiting, where.math, where.system}},
          {"counters", counters},
          {"addresses", addresses},
          {"log", run.log},
          {"failure", run.failure}};
}

DiagnosisRun DiagnosisRunFromJson(const json& whole) {
  DiagnosisRun run;
  Diagnosis& found = run.found;
  found.threads = whole.at("threads");
  found.cold_us = NumberIn(whole, "cold_us");
  found.warm_us = NumberIn(whole, "warm_us");
  found.one_thread_us = NumberIn(whole, "one_thread_us");
  found.page_faults = NumberIn(whole, "page_faults");
  const json& where = whole.at("where");
  found.where = {where.at(0), where.at(1), where.at(2), where.at(3), where.at(4)};
  if (const json& counters = whole.at("counters"); counters.is_array())
    found.counters = HardwareCounters{counters.at(0), counters.at(1)};
  for (const json& address : whole.at("addresses")) run.addresses[address.at(0)] = address.at(1);
  run.log = whole.at("log");
  run.failure = whole.at("failure");
  return run;
}

}  // namespace kevin
