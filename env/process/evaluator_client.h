#pragma once
// Kevin's side of an evaluator process: starts it and sends requests (env/process/wire.h). One thread at a
// time.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
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
  // With `namespaces`, in new ones but for that of processes (SpawnOptions). Throws Error(kBroken) if the
  // process cannot be started.
  EvaluatorClient(const std::vector<std::string>& argv, std::vector<std::string> environment,
                  bool namespaces = false);

  // The result; nothing if the evaluator was killed by SIGBUS, which only memory shared with the candidate
  // can cause. Throws the Error that the evaluator sent, Error(kBroken) if it ended in another way, and
  // Error(kInterrupted) when *stop is set: the evaluator, which may wait a minute for the device's lock, is then
  // killed. `stop` may be null.
  std::optional<nlohmann::json> Ask(const nlohmann::json& request,
                                    const std::function<void(const std::string& phase)>& on_phase,
                                    const std::atomic<bool>* stop = nullptr);

 private:
  void AwaitAnswer(const std::atomic<bool>* stop);

  ChildProcess process_;
  Fd ours_;
  std::optional<LineSocket> lines_;
};

// One evaluator for the threads of an environment, which ask it in turn. Started with the first request, and
// again after one that failed. Thread-safe.
class SharedEvaluator {
 public:
  explicit SharedEvaluator(std::function<std::unique_ptr<EvaluatorClient>()> start)
      : start_(std::move(start)) {}

  // As EvaluatorClient::Ask. *wait_s grows by the time during which other threads used the evaluator.
  std::optional<nlohmann::json> Ask(const nlohmann::json& request,
                                    const std::function<void(const std::string& phase)>& on_phase,
                                    const std::atomic<bool>* stop, double* wait_s);
  // For requests in which no candidate can cause a SIGBUS: it is an Error(kBroken) too.
  nlohmann::json AskOrThrow(const nlohmann::json& request,
                            const std::function<void(const std::string& phase)>& on_phase,
                            const std::atomic<bool>* stop, double* wait_s);

 private:
  std::function<std::unique_ptr<EvaluatorClient>()> start_;
  std::mutex mutex_;
  std::unique_ptr<EvaluatorClient> evaluator_;
};

}  // namespace kevin
