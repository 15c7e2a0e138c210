#pragma once
// What went wrong with a request, and whether asking again can help.

#include <optional>
#include <random>
#include <string>

#include "policies/remote/answer.h"
#include "policies/remote/http_client.h"

namespace kevin::remote {

enum class Remedy {
  kRetry,    // overloaded, timed out, broken off
  kGiveUp,   // asking again will not help: no money left, a certificate that nobody vouches for
  kCorrect,  // what was asked for is wrong: key, model, a parameter
  kShorten   // the prompt is too long for the model
};

struct Failure {
  Remedy remedy = Remedy::kRetry;
  std::string what;       // one line: "HTTP 503: overloaded"
  std::string next_step;  // for a person; may be empty
  std::optional<double> retry_after_s;
};

// Why the response is no answer; nullopt when it is one. `malformed`: an event of it was no JSON.
std::optional<Failure> FailureOf(const HttpResponse& response, const Answer& answer, bool malformed);

// As the server asks in retry-after-ms or Retry-After (seconds, or a date), in seconds from now.
std::optional<double> RetryAfter(const HttpResponse& response);

// Before attempt `next` (from 2): doubles from `first_s` to 30 s, of which a random part between a half and
// the whole; never less than the server asked for.
double RetryDelay(int next, double first_s, std::optional<double> retry_after_s, std::mt19937_64& random);

}  // namespace kevin::remote
