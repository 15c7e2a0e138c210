#pragma once
// Kevin's side of an evaluator process: starts it and sends requests (env/process/wire.h). One thread at a
// time.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <list>
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

  // From now on an answer must come within `limit_s` seconds of its request; else the evaluator is killed and Ask throws
  // Error(kBadRequest) with these texts.
  void LimitAnswers(double limit_s, std::string what, std::string next_step);

  // The keys of the sessions that the evaluator had after its latest answer.
  const std::vector<std::string>& resident() const { return resident_; }

 private:
  using Clock = std::chrono::steady_clock;
  void AwaitAnswer(const std::atomic<bool>* stop, Clock::time_point since);

  double limit_s_ = 0;  // 0: none
  std::string late_, late_next_step_;
  std::vector<std::string> resident_;
  ChildProcess process_;
  Fd ours_;
  std::optional<LineSocket> lines_;
};

// The order in which waiting requests are served: the oldest one first whose session is resident (preparing a session
// may drop another); the oldest of all where there is none, or when it has waited for longer than `patience`. So no
// request starves. Requests without a session count as resident. Not thread-safe.
class RequestOrder {
 public:
  using Clock = std::chrono::steady_clock;
  using Ticket = uint64_t;
  explicit RequestOrder(std::chrono::milliseconds patience) : patience_(patience) {}

  Ticket Enter(std::string session, Clock::time_point now);
  void Leave(Ticket ticket);
  // The ticket to serve next; 0: nothing waits.
  Ticket Next(const std::vector<std::string>& resident, Clock::time_point now) const;

 private:
  struct Waiting {
    Ticket ticket;
    std::string session;
    Clock::time_point since;
  };
  std::chrono::milliseconds patience_;
  Ticket latest_ = 0;
  std::list<Waiting> waiting_;  // the oldest first
};

// One evaluator for the threads of an environment, which ask it in the order of RequestOrder. Started with the first
// request, and again after one that failed. Thread-safe.
class SharedEvaluator {
 public:
  explicit SharedEvaluator(std::function<std::unique_ptr<EvaluatorClient>()> start)
      : start_(std::move(start)) {}

  // As EvaluatorClient::Ask. *wait_s grows by the time during which other threads used the evaluator. Throws
  // Error(kInterrupted) when *stop is set during that time.
  std::optional<nlohmann::json> Ask(const nlohmann::json& request,
                                    const std::function<void(const std::string& phase)>& on_phase,
                                    const std::atomic<bool>* stop, double* wait_s);
  // For requests in which no candidate can cause a SIGBUS: it is an Error(kBroken) too.
  nlohmann::json AskOrThrow(const nlohmann::json& request,
                            const std::function<void(const std::string& phase)>& on_phase,
                            const std::atomic<bool>* stop, double* wait_s);
  // Starts the evaluator where there is none and nobody asks it. Throws Error where none can be started.
  void Start();
  // Sends the request where an evaluator has been started; else does nothing.
  void TellIfStarted(const nlohmann::json& request);
  // The same where the request's session is not resident, for what only saves time: an error ends the evaluator, and
  // the next request, which starts another, says what fails. Starts none itself: an evaluator ends with the
  // thread that started it. Does nothing once *stop is set.
  void GetReady(const nlohmann::json& request, const std::atomic<bool>* stop);

 private:
  static constexpr std::chrono::milliseconds kPatience{60'000};
  void AwaitTurn(const std::string& session, const std::atomic<bool>* stop);
  void EndTurn();

  std::function<std::unique_ptr<EvaluatorClient>()> start_;
  std::unique_ptr<EvaluatorClient> evaluator_;  // of the thread whose turn it is
  std::mutex mutex_;                            // of the members below
  std::condition_variable changed_;
  bool busy_ = false;
  RequestOrder order_{kPatience};
  std::vector<std::string> resident_;
};

}  // namespace kevin
