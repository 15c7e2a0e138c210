// The contract that every policy fulfils (policies/policy.h).

#include <memory>

#include "env/error.h"
#include "policies/replay/replay_policy.h"
#include "policies/search/search_policy.h"
#include "tests/catch.h"
#include "tests/policies/remote/remote_fixture.h"
#include "tests/support/graph_text.h"
#include "tests/support/reply.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kReply =
    "Plain loop.\n\n```cpp\nextern \"C\" void launch(const float* x, float* out) { out[0] = x[0]; "
    "}\n```\n\nDone.\n";

// The server of remote policies; it answers with kReply.
MockApi& Api() {
  static MockApi api;
  api.answer.text = kReply;
  return api;
}

std::vector<std::unique_ptr<Policy>> EveryPolicy() {
  std::vector<std::unique_ptr<Policy>> policies;
  for (const std::string& provider : kProviders) policies.push_back(PolicyFor(Api(), provider));
  policies.push_back(MakeSearchPolicy());
  policies.push_back(MakeReplayPolicy("replay:01TEST", {kReply, kReply}));
  return policies;
}

Request Relu() { return GraphRequest({{"x", {64, 128}}}, ReluSteps({64, 128})); }

}  // namespace

TEST_CASE("every policy answers with one fenced block that defines launch") {
  for (const auto& policy : EveryPolicy()) {
    INFO(policy->Name());
    const Completion completion = policy->Complete(Relu(), nullptr, nullptr);
    const std::string source = SourceOf(completion.text);
    CHECK(source.find("extern \"C\" void launch(const float* ") != std::string::npos);
    CHECK(source.find(", float* ") != std::string::npos);
    CHECK(completion.text.find("```cpp") > 0);
    CHECK(completion.text.rfind("```") + 4 < completion.text.size());
    CHECK(completion.stop_reason == "stop");
    CHECK_FALSE(completion.model.empty());
    CHECK(policy->WhyNot(Relu().task).empty());
  }
}

TEST_CASE("every policy reports the usage it had, and no tokens where there are none") {
  for (const auto& policy : EveryPolicy()) {
    const Completion completion = policy->Complete(Relu(), nullptr, nullptr);
    CHECK(completion.usage.prompt_tokens >= 0);
    CHECK(completion.usage.completion_tokens >= 0);
    CHECK(completion.token_ids.size() == completion.logprobs.size());
    CHECK(completion.token_ids.empty());
  }
}

TEST_CASE("every policy passes the whole text to the callback") {
  for (const auto& policy : EveryPolicy()) {
    std::string seen;
    const Completion completion =
        policy->Complete(Relu(), nullptr, [&](const std::string& piece) { seen += piece; });
    CHECK(seen == completion.text);
  }
}

TEST_CASE("every policy stops when it is cancelled") {
  const CancelToken cancel = true;
  for (const auto& policy : EveryPolicy()) {
    bool called = false;
    const Completion completion =
        policy->Complete(Relu(), &cancel, [&](const std::string&) { called = true; });
    CHECK(completion.stop_reason == "cancelled");
    CHECK(completion.text.empty());
    CHECK_FALSE(called);
  }
}

TEST_CASE("equal requests get equal answers") {
  for (const auto& policy : EveryPolicy()) {
    Request request = Relu();
    request.sampling.seed = 7;
    AddAttempt(request.task, "a kernel of somebody else", "measured", 1.1);
    CHECK(policy->Complete(request, nullptr, nullptr).text ==
          policy->Complete(request, nullptr, nullptr).text);
  }
}

TEST_CASE("replay answers by turn and says when the replies end") {
  const auto policy = MakeReplayPolicy("replay:01TEST", {"first", "second"});
  Request request = Relu();
  request.task.turn = 2;
  CHECK(policy->Complete(request, nullptr, nullptr).text == "second");
  request.task.turn = 1;
  CHECK(policy->Complete(request, nullptr, nullptr).text == "first");
  request.task.turn = 3;
  try {
    policy->Complete(request, nullptr, nullptr);
    FAIL("no error past the last reply");
  } catch (const NothingLeft& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(std::string(error.what()).find("only 2 replies") != std::string::npos);
    CHECK(error.next_step().find("--turns 2") != std::string::npos);
  }
  CHECK_FALSE(MakeReplayPolicy("replay:01EMPTY", {})->WhyNot(request.task).empty());
}
