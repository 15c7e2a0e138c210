#pragma once
// One Complete of a remote policy: requests, one after the other, until there is an answer or no hope of one.

#include <mutex>
#include <optional>
#include <random>
#include <string>

#include "policies/remote/failure.h"
#include "policies/remote/http_client.h"
#include "policies/remote/limits.h"
#include "policies/remote/prices.h"
#include "policies/remote/remote_policy.h"
#include "policies/remote/response_cache.h"
#include "policies/remote/response_reader.h"
#include "policies/remote/wire.h"

namespace kevin::remote {

// Why no request of this policy can succeed any more, once that is known. Any thread.
class Death {
 public:
  void Set(const PolicyGone& error);
  void ThrowIfSet();
  // The latest failure, which says what a server died of.
  void Remember(const std::string& failure);
  std::string Latest();

 private:
  std::mutex mutex_;
  std::optional<PolicyGone> error_;
  std::string latest_;
};

// What all calls of a policy have in common; outlives them.
struct Shared {
  const RemoteOptions& options;
  const WireContext& context;
  const Wire& wire;
  HttpClient& http;
  Limiter& limiter;
  CircuitBreaker& breaker;
  Budget& budget;
  const ResponseCache& cache;
  Death& death;
  const Price* price;  // null: unknown
};

class Call {
 public:
  Call(const Shared& shared, const Request& request, const CancelToken* cancel, const OnText& on_text);
  Completion Run();

 private:
  struct Tried;
  void Prepare();  // makes body_; asks the server for the prompt's token ids where they are needed
  std::vector<int32_t> Tokenise();
  std::optional<Completion> FromCache();
  Tried Try(int number);
  Tried Send(RequestAttempt* attempt);
  void Close(const Tried& tried, RequestAttempt* attempt);
  void Settle(const RequestAttempt& attempt, size_t received);
  void Report(const RequestAttempt& attempt) const;
  [[noreturn]] void Throw(const Failure& failure, int attempts);
  ExitCode CodeFor(const Failure& failure) const;

  HttpRequest Post(const std::string& url, const std::string& body) const;
  RequestAttempt NewAttempt(int number) const;
  std::string CacheKey() const;
  OnText Watched();
  bool Cancelled() const { return cancel_ != nullptr && *cancel_; }
  Completion Cancellation() const;
  int64_t GuessedTokens() const;

  const Shared& shared_;
  const Request& request_;
  const CancelToken* const cancel_;
  const OnText& on_text_;
  WireContext context_;
  std::string url_, body_;
  bool shown_ = false;  // on_text_ got something that may have to be taken back
  double cost_usd_ = 0;
  bool cost_known_ = true;
  std::mt19937_64 random_;
};

}  // namespace kevin::remote
