#include "policies/remote/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace kevin::remote {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr Seconds kBurst{10};
constexpr auto kLook = std::chrono::milliseconds(50);  // how long a cancel may go unnoticed

bool IsSet(const CancelToken* cancel) { return cancel != nullptr && *cancel; }

template <class Clock>
auto After(typename Clock::time_point start, Seconds seconds) {
  return start + std::chrono::duration_cast<typename Clock::duration>(seconds);
}

}  // namespace

// --- Limiter ---

Limiter::Limiter(const Rates& rates) : concurrent_(rates.concurrent) {
  if (rates.requests_per_minute > 0) requests_.each = Seconds(60 / rates.requests_per_minute);
  if (rates.tokens_per_minute > 0) tokens_.each = Seconds(60 / rates.tokens_per_minute);
  // Nothing is saved up yet: less than a whole burst may go at first.
  requests_.paid_until = tokens_.paid_until = Clock::now();
}

bool Limiter::Meter::IsReady(Clock::time_point now) const {
  return each.count() == 0 || paid_until <= After<Clock>(now, std::max(Seconds(0), kBurst - each));
}

void Limiter::Meter::Take(Clock::time_point now, double units) {
  paid_until = After<Clock>(std::max(paid_until, now), each * units);
}

bool Limiter::Enter(int64_t tokens, const CancelToken* cancel) {
  std::unique_lock lock(mutex_);
  while (!IsSet(cancel)) {
    const auto now = Clock::now();
    const bool has_place = concurrent_ == 0 || active_ < concurrent_;
    if (has_place && requests_.IsReady(now) && tokens_.IsReady(now)) {
      requests_.Take(now, 1);
      tokens_.Take(now, static_cast<double>(tokens));
      ++active_;
      return true;
    }
    wake_.wait_for(lock, kLook);
  }
  return false;
}

void Limiter::Leave(int64_t tokens, int64_t actual) {
  const std::lock_guard lock(mutex_);
  --active_;
  if (tokens_.each.count() > 0)
    tokens_.paid_until =
        After<Clock>(tokens_.paid_until, tokens_.each * static_cast<double>(actual - tokens));
  wake_.notify_one();
}

// --- CircuitBreaker ---

CircuitBreaker::Pass CircuitBreaker::Enter(const CancelToken* cancel) {
  std::unique_lock lock(mutex_);
  while (!IsSet(cancel)) {
    if (!open_) return Pass::kGo;
    if (failed_tries_ >= options_.tries) return Pass::kDead;
    if (!trying_ && Clock::now() >= until_) {
      trying_ = true;
      return Pass::kTry;
    }
    wake_.wait_for(lock, kLook);
  }
  return Pass::kCancelled;
}

void CircuitBreaker::Succeeded() {
  const std::lock_guard lock(mutex_);
  failures_ = failed_tries_ = 0;
  open_ = trying_ = false;
  wake_.notify_all();
}

void CircuitBreaker::Failed(Pass pass) {
  const std::lock_guard lock(mutex_);
  if (pass == Pass::kTry) {
    trying_ = false;
    ++failed_tries_;
    Open(Clock::now());
  } else if (++failures_ >= options_.failures && !open_) {
    Open(Clock::now());
  }
  wake_.notify_all();
}

void CircuitBreaker::Undecided(Pass pass) {
  const std::lock_guard lock(mutex_);
  if (pass == Pass::kTry) trying_ = false;
}

void CircuitBreaker::Open(Clock::time_point now) {
  open_ = true;
  const double wait = options_.wait_s * static_cast<double>(1 << std::min(failed_tries_, 20));
  until_ = After<Clock>(now, Seconds(std::min(wait, options_.longest_s)));
}

// --- Budget ---

void Budget::Begin() {
  const std::lock_guard lock(mutex_);
  const double share = ended_ > 0 ? static_cast<double>(under_way_) / ended_ : 0;
  const auto reached = [](const std::string& what) {
    throw BudgetReached(ExitCode::kDone, "the budget of " + what + " is reached",
                        "go on with --continue and a new budget");
  };
  if (options_.usd && usd_ * (1 + share) >= *options_.usd) reached(fmt::format("${:g}", *options_.usd));
  if (options_.tokens && static_cast<double>(tokens_) * (1 + share) >= static_cast<double>(*options_.tokens))
    reached(fmt::format("{} tokens", *options_.tokens));
  if (options_.seconds && Seconds(Clock::now() - start_).count() >= *options_.seconds)
    reached(fmt::format("{:g} s", *options_.seconds));
  ++under_way_;
}

void Budget::End(int64_t tokens, double usd) {
  const std::lock_guard lock(mutex_);
  tokens_ += tokens;
  usd_ += usd;
  --under_way_;
  ++ended_;
}

void Budget::Add(int requests, int64_t tokens, double usd) {
  const std::lock_guard lock(mutex_);
  ended_ += requests;
  tokens_ += tokens;
  usd_ += usd;
}

bool SleepUnlessCancelled(double seconds, const CancelToken* cancel) {
  using Clock = std::chrono::steady_clock;
  const auto end = After<Clock>(Clock::now(), Seconds(seconds));
  while (!IsSet(cancel)) {
    const auto left = end - Clock::now();
    if (left <= Clock::duration::zero()) return true;
    std::this_thread::sleep_for(std::min<Clock::duration>(left, kLook));
  }
  return false;
}

}  // namespace kevin::remote
