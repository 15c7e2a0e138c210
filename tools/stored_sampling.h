#pragma once
// The options that decide what a model answers, as the JSON object that a run keeps: whoever goes on with it
// samples the same way. Server, key, prices, rates and records are each process's own.

#include <string>

#include "agent/policy_options.h"

namespace kevin {

// Those that are given, by their names on the command line without dashes: {"temperature": 0.7}.
std::string SamplingJson(const PolicyOptions& options);

// In what the two differ: "--temperature is 0.7 there and 0.9 here"; empty: in nothing.
std::string SamplingDifference(const std::string& there, const std::string& here);

// `options` with what `stored` says in addition. Throws Error(kBadRequest) where `options` says otherwise;
// `owner` is whose they are: "run 01K9J4".
PolicyOptions WithStoredSampling(PolicyOptions options, const std::string& stored, const std::string& owner);

}  // namespace kevin
