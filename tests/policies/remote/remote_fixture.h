#pragma once
// A mock API and policies that talk to it, with pauses short enough for tests.

#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "env/error.h"
#include "policies/remote/remote_policy.h"
#include "tests/support/mock_api.h"

namespace kevin::test {

inline const std::vector<std::string> kProviders = {"openai", "openai-responses", "anthropic"};

// Answers one request after the other with `faults`, then well; keeps what it was asked.
class MockApi {
 public:
  explicit MockApi(std::vector<MockFault> faults = {}, const std::filesystem::path& unix_socket = {})
      : faults_(std::move(faults)),
        server_([this](const MockRequest& request) { return Reply(request); }, unix_socket) {}

  MockAnswer answer;
  double retry_after_s = 0.05;
  // In place of all this, when it is set.
  std::function<MockReply(const MockRequest&)> handler;

  const MockServer& server() const { return server_; }
  std::string Base(const std::string& provider) const {
    return server_.Url() + (provider == "anthropic" ? "" : "/v1");
  }
  std::vector<MockRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  MockReply Reply(const MockRequest& request) {
    MockFault fault = MockFault::kNone;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      if (requests_.size() <= faults_.size()) fault = faults_[requests_.size() - 1];
    }
    return handler ? handler(request) : ReplyTo(request, answer, fault, retry_after_s);
  }

  const std::vector<MockFault> faults_;
  std::mutex mutex_;
  std::vector<MockRequest> requests_;
  MockServer server_;
};

inline RemoteOptions QuickOptions(const std::string& spec, const std::string& base_url) {
  RemoteOptions options;
  options.endpoint = remote::ParseSpec(spec, base_url);
  options.key = "sk-test-0123456789";
  options.http = {5, 0.4, 5, size_t{1} << 24};
  options.attempts = 3;
  options.first_delay_s = 0.01;
  options.outage = {10, 0.05, 0.2, 3};
  return options;
}

inline std::unique_ptr<RemotePolicy> PolicyFor(const MockApi& api, const std::string& provider) {
  return MakeRemotePolicy(QuickOptions(provider + ":mock-1", api.Base(provider)));
}

inline Request SmallRequest() {
  Request request;
  request.messages = {{"system", "You write kernels."}, {"user", "Write one: \xE2\x82\xAC \"quoted\"\n"}};
  request.sampling.max_tokens = 2000;
  return request;
}

// The request's attempts once they have ended.
inline Request Watched(Request request, std::vector<RequestAttempt>* ended) {
  request.on_attempt = [ended](const RequestAttempt& attempt) {
    if (attempt.outcome != "sent") ended->push_back(attempt);
  };
  return request;
}

struct Thrown {
  ExitCode code = ExitCode::kDone;
  std::string what, next_step;
};
inline Thrown ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what(), error.next_step()};
  }
  return {};
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A variable of the environment, while this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace kevin::test
