#pragma once
// What holds requests back: the provider's rates, an outage, the person's budget. All three are shared by
// every thread of a policy, and any thread may call them.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "policies/policy.h"

namespace kevin::remote {

struct Rates {  // 0: unlimited
  double requests_per_minute = 0, tokens_per_minute = 0;
  int concurrent = 0;
};

// Spreads requests and tokens over time; ten seconds' worth may go at once.
class Limiter {
 public:
  explicit Limiter(const Rates& rates);
  // Waits for a place for a request of about `tokens`. False: cancelled while waiting.
  bool Enter(int64_t tokens, const CancelToken* cancel);
  // The request has ended; it came to `actual` tokens.
  void Leave(int64_t tokens, int64_t actual);

 private:
  using Clock = std::chrono::steady_clock;
  struct Meter {
    std::chrono::duration<double> each{0};  // time that one unit takes
    Clock::time_point paid_until;
    bool IsReady(Clock::time_point now) const;
    void Take(Clock::time_point now, double units);
  };

  const int concurrent_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Meter requests_, tokens_;
  int active_ = 0;
};

struct OutageOptions {
  int failures = 10;      // in a row, over all threads, that open the circuit
  double wait_s = 5;      // until one request tries again; doubles with each that fails
  double longest_s = 60;  // but not beyond this
  int tries = 6;          // that fail in a row until the server counts as dead
};

// When request after request fails, the others wait while one at a time tries whether the server is back.
class CircuitBreaker {
 public:
  explicit CircuitBreaker(const OutageOptions& options) : options_(options) {}

  enum class Pass { kGo, kTry, kCancelled, kDead };
  Pass Enter(const CancelToken* cancel);
  void Succeeded();
  void Failed(Pass pass);     // kGo or kTry
  void Undecided(Pass pass);  // cancelled, or it failed for a reason of its own

 private:
  using Clock = std::chrono::steady_clock;
  void Open(Clock::time_point now);

  const OutageOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int failures_ = 0, failed_tries_ = 0;
  bool open_ = false, trying_ = false;
  Clock::time_point until_;
};

struct BudgetOptions {
  std::optional<double> usd, seconds;
  std::optional<int64_t> tokens;
};

// Counts from when it is made. What is under way counts with what one request took on average so far, so that
// a limit is passed by little, if at all.
class Budget {
 public:
  explicit Budget(const BudgetOptions& options) : options_(options) {}
  void Begin();  // a request; throws BudgetReached when it must not be sent
  void End(int64_t tokens, double usd);
  void Add(int requests, int64_t tokens, double usd);  // that ended before this was made

 private:
  using Clock = std::chrono::steady_clock;
  const BudgetOptions options_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  int64_t tokens_ = 0;
  double usd_ = 0;
  int ended_ = 0, under_way_ = 0;
};

// Sleeps; false when cancelled before the time is over.
bool SleepUnlessCancelled(double seconds, const CancelToken* cancel);

}  // namespace kevin::remote
