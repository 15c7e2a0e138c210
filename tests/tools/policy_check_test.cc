// `kevin policy check` against a server of the test.

#include "tests/catch.h"
#include "tests/policies/remote/remote_fixture.h"
#include "tests/tools/command_line.h"

namespace kevin {
namespace {

// What a server's most likely tokens are, whose logits are 1 apart, for the request in `body`.
MockReply TwoTokens(const Json& body, bool is_processed) {
  const double gap = is_processed ? 1 / body.at("temperature").get<double>() : 1;
  const Json likely = {{{"token", "a"}, {"logprob", -1}}, {{"token", "b"}, {"logprob", -1 - gap}}};
  const Json content = {{{"token", "a"}, {"logprob", -1}, {"top_logprobs", likely}}};
  const Json reply = {{"choices",
                       {{{"index", 0},
                         {"message", {{"content", "a"}}},
                         {"finish_reason", "length"},
                         {"logprobs", {{"content", content}}}}}}};
  return {200, {"content-type: application/json"}, {{0, reply.dump()}}, MockReply::End::kWhole};
}

TEST_CASE("policy check says of which distribution a server's log-probabilities are") {
  for (const bool is_processed : {false, true}) {
    INFO((is_processed ? "processed" : "raw"));
    test::MockApi api;
    api.answer.token_ids = {10}, api.answer.logprobs = {-0.5f}, api.answer.prompt_token_ids = {1};
    api.handler = [&](const MockRequest& request) {
      const Json body = Json::parse(request.body, nullptr, false);  // none where models are listed
      return body.contains("top_logprobs") ? TwoTokens(body, is_processed) : ReplyTo(request, api.answer);
    };
    const Result result = RunCommand(
        {AddPolicyCommand}, {"policy", "check", "openai:m", "--base-url", api.Base("openai"), "--json"});
    INFO(result.error << result.output);
    REQUIRE(result.code == 0);
    Json found;
    for (const Json& line : Lines(result.output)) {
      if (line.at("name") == "logprobs of") found = line;
    }
    REQUIRE(found.is_object());
    CHECK(found.at("ok") == is_processed);
    const std::string advice =
        "records can train at temperature 1 only; start vLLM with --logprobs-mode processed_logprobs";
    CHECK(Contains(found.at("found"), is_processed ? "after temperature" : advice));
  }
}

}  // namespace
}  // namespace kevin
