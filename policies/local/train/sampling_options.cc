#include "policies/local/train/sampling_options.h"

#include <nlohmann/json.hpp>

namespace kevin::local {
namespace {

template <class Options, class Visit>
void VisitSampling(Options& o, const Visit& visit) {
  visit("socket", o.socket), visit("device", o.device), visit("context_tokens", o.context_tokens);
  visit("cache_tokens", o.cache_tokens), visit("judge_bytes", o.judge_bytes), visit("samplers", o.samplers);
  visit("trains_there", o.trains_there), visit("samplers_here", o.samplers_here);
}

}  // namespace

nlohmann::json ToJson(const SamplingOptions& options) {
  nlohmann::json json = nlohmann::json::object();
  VisitSampling(options, [&](const char* name, const auto& member) { json[name] = member; });
  return json;
}

SamplingOptions SamplingOptionsFromJson(const nlohmann::json& json) {
  SamplingOptions options;
  VisitSampling(options, [&](const char* name, auto& member) { json.at(name).get_to(member); });
  return options;
}

void RequestSampling(const ModelConfig& config, const std::string& trainer, const SamplingOptions& sampling,
                     const std::function<int64_t(const std::string& device)>& free_bytes,
                     TrainPlanRequest* request) {
  const std::string& sampler = sampling.device.empty() ? trainer : sampling.device;
  const int64_t context = sampling.context_tokens > 0 ? sampling.context_tokens : config.context;
  int64_t cache = sampling.cache_tokens;
  if (cache == 0 && sampler == "cpu") cache = kContextsOnCpu * context;
  SecondCopies& copies = request->copies;
  copies.here = sampling.samplers_here;
  copies.context_tokens = context, copies.cache_tokens = cache;
  if (sampling.device.empty()) request->context_tokens = context, request->cache_tokens = cache;
  if (sampler == trainer) {
    request->judge_bytes = sampling.judge_bytes;
    return;
  }
  copies.device = sampler, copies.there = sampling.samplers;
  copies.there_bytes = free_bytes(sampler), copies.judge_bytes = sampling.judge_bytes;
}

}  // namespace kevin::local
