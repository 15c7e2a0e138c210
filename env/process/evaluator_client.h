#pragma once
// Kevin's side of an evaluator process: starts it and asks it (env/process/wire.h).

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "env/process/wire.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

class EvaluatorClient {
 public:
  // Throws Error(kBroken) when the process cannot be started.
  EvaluatorClient(const std::vector<std::string>& argv, std::vector<std::string> environment);

  // The result, or nothing when the evaluator died by SIGBUS while it read what the candidate owns. Throws
  // Error with what the evaluator said, or kBroken when it died otherwise.
  std::optional<nlohmann::json> Ask(const nlohmann::json& request,
                                    const std::function<void(const std::string& phase)>& on_phase);

 private:
  ChildProcess process_;
  Fd ours_;
  std::optional<LineSocket> lines_;
};

}  // namespace kevin
