#include "policies/local/train/sampling_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

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

CannotSplit WhyNotSplit(const ModelConfig& config, const std::string& quantization, int ranks) {
  if (ranks < 2)
    return {"a sampler is split over several ranks, and there is one", "start several ranks (torchrun)"};
  if (quantization != "none")
    return {"quantised weights are not split over the ranks that sample: their blocks run across heads",
            "leave out --quantization or --split-sampler"};
  if (config.experts > 0)
    return {"a mixture of experts is not split over the ranks that sample", "leave out --split-sampler"};
  if (config.kv_heads % ranks == 0 && config.ffn % ranks == 0) return {};
  std::vector<int> possible;
  for (int n = 2; n <= config.kv_heads; ++n) {
    if (config.kv_heads % n == 0 && config.ffn % n == 0) possible.push_back(n);
  }
  const bool heads = config.kv_heads % ranks != 0;
  return {fmt::format("a sampler split over {} ranks: the model's {} are {}, which {} does not divide", ranks,
                      heads ? "heads of keys and values" : "columns of feed-forward layers",
                      heads ? config.kv_heads : config.ffn, ranks),
          possible.empty()
              ? "leave out --split-sampler"
              : fmt::format("start {} ranks, or leave out --split-sampler", fmt::join(possible, " or "))};
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
  if (sampler == trainer) return;
  copies.device = sampler, copies.there = sampling.samplers;
  copies.there_bytes = free_bytes(sampler), copies.judge_bytes = sampling.judge_bytes;
}

}  // namespace kevin::local
