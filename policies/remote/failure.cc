#include "policies/remote/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "policies/remote/json.h"
#include "policies/remote/wire.h"

namespace kevin::remote {
namespace {

constexpr double kLongestDelayS = 30;
constexpr size_t kLongestMessage = 500;

std::string Header(const HttpResponse& response, const char* name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "" : found->second;
}

bool Contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Money, not speed: it comes as a 429 too.
bool IsAboutMoney(const ServerError& error) {
  for (const char* name : {"insufficient_quota", "credit_balance", "billing", "enforced_spend_limit_reached",
                           "insufficient_balance", "insufficient_credits"}) {
    if (Contains(error.code, name) || Contains(error.type, name)) return true;
  }
  return Contains(error.message, "exceeded your current quota") || Contains(error.message, "credit balance");
}

bool IsAboutLength(const ServerError& error) {
  if (error.code == "context_length_exceeded" || error.type == "exceed_context_size_error") return true;
  for (const char* part :
       {"maximum context length", "prompt is too long", "context window", "context size",
        "exceed context limit", "longer than the maximum", "exceeds the available context"}) {
    if (Contains(error.message, part)) return true;
  }
  return false;
}

bool IsRetriedStatus(int status) {
  return status == 408 || status == 409 || status == 425 || status == 429 || status >= 500;
}

std::string OneLine(std::string text) {
  text = ValidUtf8(text);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  if (text.size() > kLongestMessage) text = ValidUtf8(text.substr(0, kLongestMessage)) + " ...";
  return text;
}

std::string Describe(const std::string& prefix, const ServerError& error) {
  const std::string& kind = error.code.empty() ? error.type : error.code;
  const std::string message = error.message.empty() ? kind : error.message;
  return OneLine(prefix + (message.empty() ? "" : ": " + message));
}

const char* NextStepFor(int status) {
  switch (status) {
    case 401:
    case 403:
      return "check the key (its variable or --key-file) and what it may do";
    case 404:
      return "check the model's name and the base URL (--base-url)";
    case 402:
      return "add credit with the provider, then go on with --continue";
    default:
      return "change what was asked for; kevin policy check SPEC tries it with one small request";
  }
}

// Errors inside a stream have no status; their type says what it would have been.
bool IsPassing(const ServerError& error) {
  for (const char* name : {"overloaded", "rate_limit", "api_error", "server_error", "timeout", "internal",
                           "unavailable", "abort"}) {
    if (Contains(error.type, name) || Contains(error.code, name)) return true;
  }
  const int code = std::atoi(error.code.c_str());
  return IsRetriedStatus(code) || (error.type.empty() && error.code.empty());
}

Failure Quota(const std::string& what) {
  return {Remedy::kGiveUp, what, "raise the provider's limit or add credit, then go on with --continue", {}};
}

Failure OfStatus(const HttpResponse& response) {
  const int status = *response.status;
  const auto body = ParseJson(response.body);
  ServerError error;
  if (body) error = ErrorIn(*body).value_or(ServerError{});
  if (error.message.empty() && !body) error.message = response.body.substr(0, kLongestMessage);
  const std::string what = Describe(fmt::format("HTTP {}", status), error);
  if (IsAboutMoney(error) || status == 402) return Quota(what);
  const std::string says = Header(response, "x-should-retry");
  if (says == "true" || (says != "false" && IsRetriedStatus(status)))
    return {Remedy::kRetry, what, "", RetryAfter(response)};
  if ((status == 400 || status == 413) && IsAboutLength(error))
    return {Remedy::kShorten, what, "give the model's window with --context", {}};
  if (IsRetriedStatus(status)) return {Remedy::kGiveUp, what, "", {}};
  return {Remedy::kCorrect, what, NextStepFor(status), {}};
}

Failure OfErrorInside(const ServerError& error) {
  const std::string what = Describe("the answer ended in an error", error);
  if (IsAboutMoney(error)) return Quota(what);
  if (IsAboutLength(error)) return {Remedy::kShorten, what, "give the model's window with --context", {}};
  if (IsPassing(error)) return {Remedy::kRetry, what, "", {}};
  return {Remedy::kCorrect, what, NextStepFor(400), {}};
}

Failure OfTransport(const HttpResponse& response) {
  if (response.transport == Transport::kUntrusted) {
    return {Remedy::kGiveUp,
            OneLine(response.error),
            "if you trust the server, give its certificate with --ca-file",
            {}};
  }
  return {Remedy::kRetry, OneLine(response.error), "", {}};
}

}  // namespace

std::optional<Failure> FailureOf(const HttpResponse& response, const Answer& answer, bool malformed) {
  const bool arrived = response.transport == Transport::kDone || response.transport == Transport::kEnough;
  if (response.status && (*response.status < 200 || *response.status > 299)) return OfStatus(response);
  if (answer.error) return OfErrorInside(*answer.error);
  if (answer.IsComplete()) return std::nullopt;  // also when the connection broke after that
  if (!arrived) return OfTransport(response);
  if (malformed) return Failure{Remedy::kRetry, "the answer is no JSON", "", {}};
  const std::string type = Header(response, "content-type");
  if (!Contains(type, "text/event-stream") && !Contains(type, "json")) {
    return Failure{Remedy::kRetry,
                   OneLine(fmt::format("the answer is \"{}\", no API's", type)),
                   "check the base URL (--base-url)",
                   {}};
  }
  return Failure{Remedy::kRetry, "the answer broke off", "", {}};
}

std::optional<double> RetryAfter(const HttpResponse& response) {
  char* end = nullptr;
  if (const std::string ms = Header(response, "retry-after-ms"); !ms.empty()) {
    const double value = std::strtod(ms.c_str(), &end);
    if (*end == '\0' && std::isfinite(value) && value >= 0) return value / 1e3;
  }
  const std::string after = Header(response, "retry-after");
  if (after.empty()) return std::nullopt;
  const double seconds = std::strtod(after.c_str(), &end);
  if (*end == '\0') return std::isfinite(seconds) && seconds >= 0 ? std::optional(seconds) : std::nullopt;
  return SecondsUntil(after);
}

double RetryDelay(int next, double first_s, std::optional<double> retry_after_s, std::mt19937_64& random) {
  const double whole = std::min(kLongestDelayS, first_s * std::pow(2.0, std::min(next - 2, 30)));
  const double delay = whole * std::uniform_real_distribution(0.5, 1.0)(random);
  return std::max(delay, retry_after_s.value_or(0));
}

}  // namespace kevin::remote
