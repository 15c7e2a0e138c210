#pragma once
// What running a candidate for a diagnosis gave, on its way from the evaluator. Pure; any thread.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "env/diagnosis/diagnosis.h"
#include "env/diagnosis/hot_loop.h"

namespace kevin {

struct DiagnosisRun {
  Diagnosis found;           // times, page faults, shares of the threads
  AddressSamples addresses;  // in the library
  std::string log;           // what it printed in the calls with cold caches: the times of stages
  std::string failure;       // empty, or why it could not be run
};

// Reading throws nlohmann::json::exception.
nlohmann::json DiagnosisRunToJson(const DiagnosisRun& run);
DiagnosisRun DiagnosisRunFromJson(const nlohmann::json& json);

}  // namespace kevin
