#pragma once
// One HTTP response of a model server: read into an Answer, classified when it is a failure, and kept on
// disk.

#include <chrono>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "policies/remote/answer.h"
#include "policies/remote/http_client.h"
#include "policies/remote/wire.h"

namespace kevin::remote {

// Reads the bytes of one response: an event stream or one JSON object, according to its content type. One
// thread.
class ResponseReader {
 public:
  // `wire` must outlive this.
  ResponseReader(const Wire& wire, OnText on_text);

  Reading Take(const HttpResponse& so_far, std::string_view piece);  // an OnBody
  void Finish(const HttpResponse& response);                         // after the last piece

  Answer& answer() { return answer_; }
  bool malformed() const { return malformed_; }                           // an event was not JSON
  std::optional<double> first_token_s() const { return first_token_s_; }  // since construction

 private:
  void OnEvent(const SseEvent& event);

  const Wire& wire_;
  Answer answer_;
  SseParser parser_;
  bool malformed_ = false, is_stream_ = false;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<double> first_token_s_;
};

enum class Remedy {
  kRetry,    // a transient error: overloaded, timed out, connection lost
  kGiveUp,   // a permanent failure of the server or account: no credit, an unverifiable certificate
  kCorrect,  // the request is invalid: key, model, a parameter
  kShorten   // the prompt is too long for the model
};

struct Failure {
  Remedy remedy = Remedy::kRetry;
  std::string what;       // one line: "HTTP 503: overloaded"
  std::string next_step;  // for the user; may be empty
  std::optional<double> retry_after_s;
};

// Why the response is not an answer; nullopt when it is one. `malformed`: see ResponseReader.
std::optional<Failure> FailureOf(const HttpResponse& response, const Answer& answer, bool malformed);

// The server's retry-after-ms or Retry-After (seconds, or a date), in seconds from now.
std::optional<double> RetryAfter(const HttpResponse& response);

// Seconds before attempt `next` (from 2). The delay doubles from `first_s` up to 30 s and is multiplied by a
// random factor of 0.5 to 1, so that clients do not retry in step; it is never less than `retry_after_s`.
double RetryDelay(int next, double first_s, std::optional<double> retry_after_s, std::mt19937_64& random);

// Responses stored in a folder under a hash of their request: a collection that is started again sends no
// request twice. Only complete answers are kept. May be called from any thread and process.
class ResponseCache {
 public:
  // Creates the folder, private to its owner. Throws Error(kBadRequest) when it is not writable. An empty
  // path is a cache that holds nothing.
  explicit ResponseCache(std::filesystem::path folder);

  // `key`: everything on which the answer depends. Two requests of equal text that must get different answers
  // (other seeds, where the provider takes none) need different keys.
  std::optional<HttpResponse> Find(const std::string& key) const;
  void Keep(const std::string& key, const HttpResponse& response) const;  // throws Error(kBroken)

 private:
  std::filesystem::path PathOf(const std::string& key) const;
  std::filesystem::path folder_;
};

}  // namespace kevin::remote
