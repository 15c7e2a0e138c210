#pragma once
// What limits the requests of a policy: the provider's rates (Limiter), an outage (CircuitBreaker), the
// user's budget (Budget), and the prices that a budget in dollars needs (PriceTable). The first three are
// shared by all threads of a policy; their functions may be called from any thread.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "policies/policy.h"

namespace kevin::remote {

struct Rates {  // 0: unlimited
  double requests_per_minute = 0, tokens_per_minute = 0;
  int concurrent = 0;
};

// Distributes requests and tokens over time. A burst may use the quota of ten seconds.
class Limiter {
 public:
  explicit Limiter(const Rates& rates);
  // Waits for permission to send a request of about `tokens`. False: cancelled while waiting.
  bool Enter(int64_t tokens, const CancelToken* cancel);
  // The request has ended and took `actual` tokens; `tokens` as for Enter.
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
  int failures = 10;      // consecutive ones, over all threads, that open the circuit
  double wait_s = 5;      // before the first probe; doubles with each probe that fails
  double longest_s = 60;  // at most
  int tries = 6;          // consecutive probes that fail before the server counts as unavailable
};

// A circuit breaker: while it is open, one request at a time probes the server and all others wait.
class CircuitBreaker {
 public:
  explicit CircuitBreaker(const OutageOptions& options) : options_(options) {}

  enum class Pass { kGo, kTry, kCancelled, kUnavailable };
  Pass Enter(const CancelToken* cancel);
  void Succeeded();
  void Failed(Pass pass);     // kGo or kTry
  void Undecided(Pass pass);  // cancelled, or a failure that says nothing about the server

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

// Counts money, tokens and time since its construction. A request under way counts as the average of those
// that have ended, so that a limit is exceeded by little, if at all.
class Budget {
 public:
  explicit Budget(const BudgetOptions& options) : options_(options) {}
  void Begin();  // a request; throws BudgetReached when it must not be sent
  void End(int64_t tokens, double usd);
  void Add(int requests, int64_t tokens, double usd);  // that ended before construction

 private:
  using Clock = std::chrono::steady_clock;
  const BudgetOptions options_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  int64_t tokens_ = 0;
  double usd_ = 0;
  int ended_ = 0, under_way_ = 0;
};

// Sleeps; false when cancelled earlier.
bool SleepUnlessCancelled(double seconds, const CancelToken* cancel);

struct Price {
  double input = 0, output = 0;  // US dollars per token
  std::optional<double> cached_input, cache_write, reasoning;
  // Longer prompts, in tokens, have other prices.
  std::optional<int64_t> long_prompt;
  double long_input = 0, long_output = 0;
  std::optional<int64_t> max_input_tokens, max_output_tokens;
};

// A file in the schema of LiteLLM's model_prices_and_context_window.json: one object per model with
// input_cost_per_token, output_cost_per_token and so on, in US dollars.
class PriceTable {
 public:
  PriceTable() = default;
  // Throws Error(kBadRequest) when the file is missing or has another schema.
  static PriceTable Read(const std::filesystem::path& path);

  // Looks for the model's name, then "provider/model"; a dated name ("gpt-5-2025-08-07") that the table lacks
  // is looked up without its date. Null: unknown.
  const Price* Find(const std::string& provider, const std::string& model) const;

 private:
  std::map<std::string, Price> prices_;
};

double Cost(const Price& price, const Usage& usage);  // in US dollars

}  // namespace kevin::remote
