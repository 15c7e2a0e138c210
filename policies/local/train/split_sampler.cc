#include "policies/local/train/split_sampler.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <utility>

#include "policies/local/train/batch.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {
SliceRunner::SliceRunner(SplitModel& model, const TorchRunnerOptions& options)
    : model_(model), runner_(model.Slice(), options) {
  const at::Device device = model.Slice().Options().device;
  if (device.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  model_.WaitForDevice();  // the cache was made on another stream
}

template <typename Work>
auto SliceRunner::OnStream(const Work& work) {
  const c10::OptionalStreamGuard guard(stream_);
  return work();
}

std::vector<SampledToken> SliceRunner::Run(std::span<const SequenceStep> steps) {
  return OnStream([&] {
    runner_.Submit(steps);
    return runner_.Wait();
  });
}

void SliceRunner::CopyPage(int from, int to) {
  OnStream([&] { runner_.CopyPage(from, to); });
}

void SliceRunner::GiveUp() {
  model_.WaitForDevice();
  model_.Free();
  OnStream([&] { runner_.GiveUpCache(); });
}

void SliceRunner::WeightsChanged() {
  OnStream([&] { runner_.WeightsChanged(); });
}

SplitLeader::SplitLeader(SplitModel& model, const TorchRunnerOptions& options,
                         std::shared_ptr<SplitLink> link, OnFailure on_failure)
    : runner_(model, options), link_(std::move(link)), on_failure_(std::move(on_failure)) {}

SplitLeader::~SplitLeader() { link_->End(""); }

template <typename Work>
void SplitLeader::Guarded(const Work& work) {
  std::optional<Error> failure;
  try {
    return work();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(ExitCode::kBroken, FirstLineOf(error.what()));
  }
  link_->End(fmt::format("it has ended: {}", failure->what()));
  on_failure_(*failure);
  throw Error(*failure);
}

void SplitLeader::Submit(std::span<const SequenceStep> steps) {
  Guarded([&] {
    std::vector<SequenceStep> known(steps.begin(), steps.end());
    std::vector<int32_t> tokens(steps.size());
    for (size_t i = 0; i < known.size(); ++i) {
      if (!known[i].tokens.empty()) continue;
      const auto found = last_.find(known[i].sequence);
      if (found == last_.end())
        throw Error(ExitCode::kBroken,
                    fmt::format("sequence {} drew no token in the step before", known[i].sequence));
      tokens[i] = found->second;
      known[i].tokens = {&tokens[i], 1};
    }
    link_->Tell({{"run", nlohmann::json::binary(PackSteps(known))}});
    drawn_ = runner_.Run(known);
    last_.clear();
    size_t next = 0;
    for (const SequenceStep& step : steps) {
      if (step.sample) last_[step.sequence] = drawn_[next++].id;
    }
  });
}

std::vector<SampledToken> SplitLeader::Wait() { return std::exchange(drawn_, {}); }

void SplitLeader::CopyPage(int from, int to) {
  Guarded([&] {
    link_->Tell({{"copy", {from, to}}});
    runner_.CopyPage(from, to);
  });
}

void SplitLeader::GiveUpCache() {
  Guarded([&] {
    link_->Tell({{"give_up", true}});
    runner_.GiveUp();
  });
}

void SplitLeader::WeightsChanged() {
  Guarded([&] {
    link_->Tell({{"go_on", true}});
    runner_.WeightsChanged();
  });
}

SplitFollower::SplitFollower(SplitModel& model, const TorchRunnerOptions& options, Socket socket, int rank,
                             OnFailure on_failure)
    : runner_(model, options),
      socket_(std::move(socket)),
      rank_(rank),
      on_failure_(std::move(on_failure)),
      thread_([this] { Follow(); }) {}

SplitFollower::~SplitFollower() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
}

void SplitFollower::Update(const std::function<void()>& update) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_paused_ || has_ended_; });
  if (!is_paused_) throw LostRank(rank_, "rank 0: it samples no more");
  lock.unlock();
  update();
  lock.lock();
  is_paused_ = false;
  changed_.notify_all();
}

void SplitFollower::Follow() {
  try {
    std::optional<nlohmann::json> command = ReadFrame(socket_.get());
    for (; command && !command->contains("end"); command = ReadFrame(socket_.get())) Do(*command);
    const std::string why = command ? command->at("end") : "it samples no more";
    if (!why.empty()) Fail(LostRank(rank_, "rank 0: " + why));
  } catch (const Error& error) {
    Fail(error);
  } catch (const std::exception& error) {
    Fail(Error(ExitCode::kBroken, FirstLineOf(error.what())));
  }
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

void SplitFollower::Do(const nlohmann::json& command) {
  if (command.contains("run")) {
    runner_.Run(UnpackedSteps(command.at("run").get_binary()).Steps());
  } else if (command.contains("copy")) {
    runner_.CopyPage(command.at("copy").at(0), command.at("copy").at(1));
  } else if (command.contains("give_up")) {
    runner_.GiveUp();
    std::unique_lock lock(mutex_);
    is_paused_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_paused_ || is_ending_; });
  } else {
    runner_.WeightsChanged();
  }
}

void SplitFollower::Fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return;
  }
  on_failure_(error);
}

}  // namespace kevin::local
