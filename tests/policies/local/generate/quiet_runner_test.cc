// A runner beside measurements: no step without the device, short holds under load, none while there is no work, and
// the answers of the runner below.

#include "policies/local/generate/quiet_runner.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/support/fake_runner.h"

namespace kevin::local {
namespace {

using Clock = std::chrono::steady_clock;

// Counts holds, and has the longest one.
struct Device {
  std::atomic<int> holds{0};
  std::atomic<bool> is_held{false};
  Clock::time_point since;
  Clock::duration longest{0};

  HoldDevice Holder() {
    return [this]() -> std::shared_ptr<void> {
      ++holds;
      is_held = true, since = Clock::now();
      return {this, [](Device* device) {
                device->longest = std::max(device->longest, Clock::now() - device->since);
                device->is_held = false;
              }};
    };
  }
};

// Takes note of steps that are computed without the device.
class Watched : public FakeRunner {
 public:
  Watched(Options options, const Device& device, std::atomic<int>* unheld)
      : FakeRunner(options), device_(device), unheld_(unheld) {}
  void Submit(std::span<const SequenceStep> steps) override {
    *unheld_ += !device_.is_held;
    FakeRunner::Submit(steps);
  }
  std::vector<SampledToken> Wait() override {
    *unheld_ += !device_.is_held;
    return FakeRunner::Wait();
  }
  void CopyPage(int from, int to) override {
    *unheld_ += !device_.is_held;
    FakeRunner::CopyPage(from, to);
  }

 private:
  const Device& device_;
  std::atomic<int>* const unheld_;
};

FakeRunner::Options Options() {
  FakeRunner::Options options;
  options.shape = {24, 2000, 8, 600, 16, 256, 2};
  options.step_seconds = 0.001;
  return options;
}

// Waits for all answers of an engine.
class Answers {
 public:
  OnPiece Take() {
    return [this](const AnswerPiece& piece) {
      const std::lock_guard lock(mutex_);
      auto& tokens = tokens_[static_cast<size_t>(piece.answer)];
      tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
      if (!piece.finish) return;
      ended_ += 1, failed_ += *piece.finish == FinishReason::kFailed;
      wake_.notify_all();
    };
  }
  bool Wait(int count) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_ == count; });
  }
  const std::vector<SampledToken>& of(size_t answer) const { return tokens_[answer]; }
  int failed() const { return failed_; }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<SampledToken> tokens_[4];
  int ended_ = 0, failed_ = 0;
};

GenerationRequest Ask(int tokens) {
  GenerationRequest request;
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  request.answers = 3;  // share a part of a page, which is copied
  request.max_tokens = tokens;
  request.sampling.seed = 5;
  return request;
}

}  // namespace

TEST_CASE("no step without the device, which is let go of again and again under load, and without work") {
  Device device;
  std::atomic<int> unheld{0};
  const FakeRunner::Options options = Options();
  Engine engine(
      std::make_unique<QuietRunner>(std::make_unique<Watched>(options, device, &unheld), device.Holder()));
  CHECK(device.holds == 0);
  Answers answers;
  constexpr int kTokens = 500;  // half a second
  engine.Submit(Ask(kTokens), answers.Take());
  REQUIRE(answers.Wait(3));
  for (int i = 0; i < 500 && device.is_held; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK_FALSE(device.is_held);
  CHECK(unheld == 0);
  CHECK(device.holds >= 3);
  CHECK(device.holds <= 30);  // and not for each step
  CHECK(device.longest < std::chrono::seconds(2));
  for (int i = 0; i < 3; ++i) {
    TokenSampling sampling = Ask(1).sampling;
    sampling.seed = AnswerSeed(sampling.seed, i);
    const auto expected = FakeRunner::TrueAnswer(options, Ask(1).prompt, sampling, kTokens);
    REQUIRE(answers.of(static_cast<size_t>(i)).size() == expected.size());
    for (size_t t = 0; t < expected.size(); ++t)
      CHECK(answers.of(static_cast<size_t>(i))[t].id == expected[t].id);
  }
}

TEST_CASE("who gives up waiting for the device ends the engine with that error") {
  Engine engine(std::make_unique<QuietRunner>(
      std::make_unique<FakeRunner>(Options()),
      []() -> std::shared_ptr<void> { throw Error(ExitCode::kInterrupted, "interrupted"); }));
  Answers answers;
  engine.Submit(Ask(5), answers.Take());
  REQUIRE(answers.Wait(3));
  CHECK(answers.failed() == 3);
  REQUIRE(engine.PermanentFailure());
  CHECK(engine.PermanentFailure()->code() == ExitCode::kInterrupted);
}

}  // namespace kevin::local
