#pragma once
// Turns the bytes of one response into an Answer: a stream of events or one JSON object, as its content type
// says.

#include <chrono>
#include <optional>
#include <string_view>

#include "policies/remote/http_client.h"
#include "policies/remote/sse_parser.h"
#include "policies/remote/wire.h"

namespace kevin::remote {

class ResponseReader {
 public:
  // `wire` must outlive this.
  ResponseReader(const Wire& wire, OnText on_text);

  Reading Take(const HttpResponse& so_far, std::string_view piece);  // an OnBody
  void Finish(const HttpResponse& response);                         // all has arrived

  Answer& answer() { return answer_; }
  bool malformed() const { return malformed_; }                           // an event was no JSON
  std::optional<double> first_token_s() const { return first_token_s_; }  // since this was made

 private:
  void OnEvent(const SseEvent& event);

  const Wire& wire_;
  Answer answer_;
  SseParser parser_;
  bool malformed_ = false, is_stream_ = false;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<double> first_token_s_;
};

}  // namespace kevin::remote
