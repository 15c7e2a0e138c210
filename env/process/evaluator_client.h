#pragma once
// Kevin's side of an evaluator process: starts it and sends requests (env/process/wire.h). One thread at a time.

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "env/process/spawn.h"
#include "env/process/wire.h"

namespace kevin {

class EvaluatorClient {
 public:
  // Throws Error(kBroken) if the process cannot be started.
  EvaluatorClient(const std::vector<std::string>& argv, std::vector<std::string> environment);

  // The result; nothing if the evaluator was killed by SIGBUS, which only memory shared with the candidate can cause.
  // Throws the Error that the evaluator sent, or Error(kBroken) if it ended in another way.
  std::optional<nlohmann::json> Ask(const nlohmann::json& request,
                                    const std::function<void(const std::string& phase)>& on_phase);

 private:
  ChildProcess process_;
  Fd ours_;
  std::optional<LineSocket> lines_;
};

}  // namespace kevin
