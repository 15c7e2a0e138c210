#include "env/process/evaluator_client.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "env/error.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kRequests = 3;  // the evaluator's descriptor
constexpr int kStopCheckMs = 100;

}  // namespace

EvaluatorClient::EvaluatorClient(const std::vector<std::string>& argv, std::vector<std::string> environment,
                                 bool namespaces) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(ExitCode::kBroken, "cannot make a socket pair for the evaluator");
  }
  ours_ = Fd(pair[0]);
  const Fd theirs(pair[1]);
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.environment = std::move(environment);
  spawn.namespaces = namespaces;
  spawn.sees_processes = true;
  spawn.descriptors = {{STDERR_FILENO, STDERR_FILENO}, {theirs.get(), kRequests}};
  process_ = Spawn(spawn);
  lines_.emplace(ours_.get());
}

void EvaluatorClient::LimitAnswers(double limit_s, std::string what, std::string next_step) {
  limit_s_ = limit_s;
  late_ = std::move(what);
  late_next_step_ = std::move(next_step);
}

void EvaluatorClient::AwaitAnswer(const std::atomic<bool>* stop, Clock::time_point since) {
  if (stop == nullptr && limit_s_ <= 0) return;
  do {
    if (stop != nullptr && *stop) {
      process_.Kill();
      throw Error(ExitCode::kInterrupted, "interrupted while a kernel was judged");
    }
    if (limit_s_ > 0 && SecondsSince(since) > limit_s_) {
      process_.Kill();
      throw Error(ExitCode::kBadRequest, late_, late_next_step_);
    }
  } while (!lines_->AwaitInput(kStopCheckMs));
}

std::optional<json> EvaluatorClient::Ask(const json& request,
                                         const std::function<void(const std::string&)>& on_phase,
                                         const std::atomic<bool>* stop) {
  std::string line;
  const Clock::time_point since = Clock::now();
  bool open = lines_->Write(request.dump());
  while (open) {
    AwaitAnswer(stop, since);
    if (!(open = lines_->Read(&line))) break;
    const json answer = json::parse(line);
    if (answer.contains("resident")) resident_ = answer["resident"].get<std::vector<std::string>>();
    if (answer.contains("result")) return answer["result"];
    if (answer.contains("phase") && on_phase) on_phase(answer["phase"]);
    if (answer.contains("error")) {
      const json& error = answer["error"];
      throw Error(static_cast<ExitCode>(error.at("code").get<int>()), error.at("what"), error.at("next"));
    }
  }
  int status = 0;
  process_.Wait(5, &status);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) return std::nullopt;
  throw Error(ExitCode::kBroken, "kevin-evaluator " + DescribeStatus(status) + " (see its message above)",
              "run `kevin doctor`; if torch is missing, set KEVIN_TORCH or run tools/kevin once");
}

RequestOrder::Ticket RequestOrder::Enter(std::string session, Clock::time_point now) {
  waiting_.push_back({++latest_, std::move(session), now});
  return latest_;
}

void RequestOrder::Leave(Ticket ticket) {
  waiting_.remove_if([&](const Waiting& waiting) { return waiting.ticket == ticket; });
}

RequestOrder::Ticket RequestOrder::Next(const std::vector<std::string>& resident,
                                        Clock::time_point now) const {
  if (waiting_.empty()) return 0;
  if (now - waiting_.front().since > patience_) return waiting_.front().ticket;
  for (const Waiting& waiting : waiting_) {
    if (waiting.session.empty() ||
        std::find(resident.begin(), resident.end(), waiting.session) != resident.end()) {
      return waiting.ticket;
    }
  }
  return waiting_.front().ticket;
}

void SharedEvaluator::AwaitTurn(const std::string& session, const std::atomic<bool>* stop) {
  std::unique_lock lock(mutex_);
  const RequestOrder::Ticket ticket = order_.Enter(session, RequestOrder::Clock::now());
  while (busy_ || order_.Next(resident_, RequestOrder::Clock::now()) != ticket) {
    // Another thread's patience may have ended meanwhile: nobody wakes this one for that.
    changed_.wait_for(lock, std::chrono::milliseconds(kStopCheckMs));
    if (stop == nullptr || !*stop) continue;
    order_.Leave(ticket);
    changed_.notify_all();
    throw Error(ExitCode::kInterrupted, "interrupted while a kernel waited to be judged");
  }
  order_.Leave(ticket);
  busy_ = true;
}

void SharedEvaluator::EndTurn() {
  const std::lock_guard lock(mutex_);
  busy_ = false;
  resident_ = evaluator_ ? evaluator_->resident() : std::vector<std::string>();
  changed_.notify_all();
}

std::optional<nlohmann::json> SharedEvaluator::Ask(
    const nlohmann::json& request, const std::function<void(const std::string& phase)>& on_phase,
    const std::atomic<bool>* stop, double* wait_s) {
  const auto start = std::chrono::steady_clock::now();
  AwaitTurn(request.value("session", ""), stop);
  *wait_s += SecondsSince(start);
  try {
    if (!evaluator_) evaluator_ = start_();
    std::optional<nlohmann::json> result = evaluator_->Ask(request, on_phase, stop);
    if (result && IsStartAgain(*result)) {
      evaluator_.reset();
      evaluator_ = start_();
      result = evaluator_->Ask(request, on_phase, stop);
    }
    if (!result) evaluator_.reset();
    EndTurn();
    return result;
  } catch (...) {
    evaluator_.reset();
    EndTurn();
    throw;
  }
}

void SharedEvaluator::Start() {
  AwaitTurn("", nullptr);
  try {
    if (!evaluator_) evaluator_ = start_();
    EndTurn();
  } catch (...) {
    EndTurn();
    throw;
  }
}

void SharedEvaluator::TellIfStarted(const nlohmann::json& request) {
  AwaitTurn("", nullptr);
  const bool is_started = evaluator_ != nullptr;
  EndTurn();
  double wait_s = 0;
  if (is_started) AskOrThrow(request, {}, nullptr, &wait_s);
}

void SharedEvaluator::GetReady(const nlohmann::json& request, const std::atomic<bool>* stop) {
  const std::string session = request.at("session");
  try {
    AwaitTurn(session, stop);
  } catch (const Error&) {
    return;
  }
  const auto is_resident = [&] {
    const std::vector<std::string>& resident = evaluator_->resident();
    return std::find(resident.begin(), resident.end(), session) != resident.end();
  };
  try {
    if (evaluator_ && !is_resident()) {
      const std::optional<json> result = evaluator_->Ask(request, {}, stop);
      if (!result || IsStartAgain(*result)) evaluator_.reset();
    }
  } catch (const std::exception&) {
    evaluator_.reset();
  }
  EndTurn();
}

nlohmann::json SharedEvaluator::AskOrThrow(const nlohmann::json& request,
                                           const std::function<void(const std::string& phase)>& on_phase,
                                           const std::atomic<bool>* stop, double* wait_s) {
  std::optional<nlohmann::json> result = Ask(request, on_phase, stop, wait_s);
  if (!result) {
    throw Error(ExitCode::kBroken, "the evaluator lost access to its memory (SIGBUS)",
                "free memory and try again");
  }
  return std::move(*result);
}

}  // namespace kevin
