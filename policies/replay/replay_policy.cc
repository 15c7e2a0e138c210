#include "policies/replay/replay_policy.h"

#include <utility>

#include "env/error.h"

namespace kevin {
namespace {

class ReplayPolicy : public Policy {
 public:
  ReplayPolicy(std::string name, std::vector<std::string> replies)
      : name_(std::move(name)), replies_(std::move(replies)) {}

  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    Completion completion;
    completion.model = name_;
    if (cancel != nullptr && cancel->load()) {
      completion.stop_reason = "cancelled";
      return completion;
    }
    const int turn = request.task.turn;
    if (turn < 1 || static_cast<size_t>(turn) > replies_.size()) {
      const std::string count = std::to_string(replies_.size());
      throw NothingLeft(
          ExitCode::kBadRequest,
          name_ + ": turn " + std::to_string(turn) + " requested, but only " + count +
              (replies_.size() == 1 ? " reply is" : " replies are") + " stored",
          "Ask for at most " + count + " turns (--turns " + count + ") or choose another policy.");
    }
    completion.text = replies_[static_cast<size_t>(turn - 1)];
    completion.stop_reason = "stop";
    if (on_text) on_text(completion.text);
    return completion;
  }

  std::string Name() const override { return name_; }

  std::string WhyNot(const Task&) const override {
    return replies_.empty()
               ? name_ + " has no stored replies; choose an episode with turns or another policy."
               : "";
  }

 private:
  std::string name_;
  std::vector<std::string> replies_;
};

}  // namespace

std::unique_ptr<Policy> MakeReplayPolicy(std::string name, std::vector<std::string> replies) {
  return std::make_unique<ReplayPolicy>(std::move(name), std::move(replies));
}

}  // namespace kevin
