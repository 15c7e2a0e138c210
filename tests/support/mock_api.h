#pragma once
// The answers of model APIs in all wire formats, and their faults, for MockServer.

#include <optional>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/remote/wire.h"
#include "tests/support/mock_server.h"

namespace kevin {

struct MockAnswer {
  std::string text = "Hello.";
  std::string reasoning;
  std::string reasoning_field = "reasoning_content";  // chat completions: or "reasoning", or "" for <think>
  Usage usage{100, 20, 40, 5, 0};
  bool has_usage = true;
  std::string stop = "stop";  // "stop", "length", "filtered"
  std::string model = "mock-1";
  std::vector<int32_t> prompt_token_ids, token_ids;
  std::vector<float> logprobs;
};

enum class MockFault {
  kNone,
  kTooMany,        // 429
  kTooManyWait,    // 429 with Retry-After
  kOverloaded,     // 529
  kServerError,    // 500
  kStall,          // silence after the first events
  kCut,            // the connection closes within the answer
  kMalformed,      // an event that is not JSON
  kNoUsage,        // a complete answer without usage
  kErrorInStream,  // status 200, then an error event
  kWrongType,      // status 200, an HTML page
  kSlowLoris       // single bytes with pauses, never a complete event
};

// An answer as server-sent events, each with its empty line, and as one JSON object.
std::vector<std::string> EventsOf(remote::Format format, const MockAnswer& answer);
std::string BodyOf(remote::Format format, const MockAnswer& answer);

// The format that a request's path belongs to; nullopt: none.
std::optional<remote::Format> FormatOfPath(const std::string& path);

// A stream when the request asks for one. `retry_after_s` is used by kTooManyWait.
MockReply ReplyTo(const MockRequest& request, const MockAnswer& answer, MockFault fault = MockFault::kNone,
                  double retry_after_s = 0.05);

}  // namespace kevin
