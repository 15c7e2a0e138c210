// Remote policies against a mock API: the requests, the answers, token ids, cost and the response cache.

#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "tests/catch.h"
#include "tests/policies/remote/remote_fixture.h"
#include "tests/support/fakes.h"

using namespace kevin;
using namespace kevin::test;
using remote::Json;
using remote::ParseJson;

TEST_CASE("every format: text, reasoning, usage, stop reason, model") {
  for (const std::string& provider : kProviders) {
    for (const bool stream : {true, false}) {
      INFO(provider << (stream ? ", stream" : ", whole"));
      MockApi api;
      api.answer.text = "First \xE2\x82\xAC, then \xF0\x9F\x9A\x80 rockets.\n\n```cpp\nint x;\n```\n";
      api.answer.reasoning = "Let me see: h\xC3\xA9.";
      api.answer.usage = {120, 30, 64, provider == "anthropic" ? 0 : 12, provider == "anthropic" ? 16 : 0};
      RemoteOptions options = QuickOptions(provider + ":mock-1", api.Base(provider));
      options.stream = stream;
      options.record = true;
      const auto policy = MakeRemotePolicy(options);
      std::vector<RequestAttempt> attempts;
      std::string seen;
      const Completion completion = policy->Complete(Watched(SmallRequest(), &attempts), nullptr,
                                                     [&](const std::string& piece) { seen += piece; });
      CHECK(completion.text == api.answer.text);
      CHECK(seen == completion.text);
      CHECK(completion.reasoning == api.answer.reasoning);
      CHECK(completion.usage.prompt_tokens == 120);
      CHECK(completion.usage.completion_tokens == 30);
      CHECK(completion.usage.cached_tokens == 64);
      CHECK(completion.usage.reasoning_tokens == api.answer.usage.reasoning_tokens);
      CHECK(completion.usage.cache_write_tokens == api.answer.usage.cache_write_tokens);
      CHECK(completion.stop_reason == "stop");
      CHECK(completion.model == "mock-1");
      CHECK_FALSE(completion.cost_usd);
      REQUIRE(attempts.size() == 1);
      CHECK(attempts[0].outcome == "answered");
      CHECK(attempts[0].status == 200);
      CHECK(attempts[0].provider == provider);
      CHECK(attempts[0].request == api.requests()[0].body);
      CHECK(Contains(attempts[0].response, "First"));
      CHECK(attempts[0].first_token_s.has_value() == stream);
      CHECK_FALSE(attempts[0].stop_cause.empty());
    }
  }
}

TEST_CASE("every format: the request") {
  for (const std::string& provider : kProviders) {
    INFO(provider);
    MockApi api;
    Request request = SmallRequest();
    request.sampling.temperature = 0.5;
    request.sampling.top_p = 0.9;
    request.sampling.seed = 0x1'0000'0007;
    request.sampling.reasoning_effort = "low";
    RemoteOptions options = QuickOptions(provider + ":some/model", api.Base(provider));
    options.extra = R"({"metadata": {"a": 1}, "top_p": null})";
    MakeRemotePolicy(options)->Complete(request, nullptr, nullptr);
    const MockRequest sent = api.requests().at(0);
    const Json body = *ParseJson(sent.body);
    CHECK(sent.method == "POST");
    CHECK(body["model"] == "some/model");
    CHECK(body["temperature"] == 0.5);
    CHECK_FALSE(body.contains("top_p"));
    CHECK(body["metadata"]["a"] == 1);
    CHECK(body["stream"] == true);
    CHECK(Contains(sent.body, "Write one: \xE2\x82\xAC \\\"quoted\\\"\\n"));
    CHECK(sent.headers.at("content-type") == "application/json");
    CHECK(sent.headers.count("expect") == 0);
    if (provider == "openai") {
      CHECK(sent.path == "/v1/chat/completions");
      CHECK(sent.headers.at("authorization") == "Bearer sk-test-0123456789");
      CHECK(body["messages"][0]["role"] == "system");
      CHECK(body["max_tokens"] == 2000);
      CHECK(body["seed"] == 7);
      CHECK(body["stream_options"]["include_usage"] == true);
      CHECK(body["reasoning_effort"] == "low");
    } else if (provider == "openai-responses") {
      CHECK(sent.path == "/v1/responses");
      CHECK(body["instructions"] == "You write kernels.");
      CHECK(body["input"].size() == 1);
      CHECK(body["max_output_tokens"] == 2000);
      CHECK(body["store"] == false);
      CHECK(body["reasoning"]["effort"] == "low");
    } else {
      CHECK(sent.path == "/v1/messages");
      CHECK(sent.headers.at("x-api-key") == "sk-test-0123456789");
      CHECK(sent.headers.at("anthropic-version") == "2023-06-01");
      CHECK(body["system"][0]["text"] == "You write kernels.");
      CHECK(body["max_tokens"] == 2000);
      CHECK(body["output_config"]["effort"] == "low");
    }
  }
}

TEST_CASE("reasoning in either field or inline, stop reasons") {
  for (const char* field : {"reasoning_content", "reasoning", ""}) {
    MockApi api;
    api.answer.reasoning = "hidden thoughts";
    api.answer.reasoning_field = field;
    const Completion completion = PolicyFor(api, "openai")->Complete(SmallRequest(), nullptr, nullptr);
    CHECK(Contains(completion.reasoning, "hidden thoughts"));
    CHECK(completion.text == "Hello.");
  }
  for (const std::string& provider : kProviders) {
    for (const char* stop : {"length", "filtered"}) {
      MockApi api;
      api.answer.stop = stop;
      CHECK(PolicyFor(api, provider)->Complete(SmallRequest(), nullptr, nullptr).stop_reason == stop);
    }
  }
}

TEST_CASE("reasoning that the template opened is withdrawn from the text callback") {
  MockApi api;
  api.answer.text = "thinking aloud</think>\n\nThe answer.";
  std::string seen;
  const Completion completion =
      PolicyFor(api, "openai")->Complete(SmallRequest(), nullptr, [&](const std::string& piece) {
        seen = piece.empty() ? "" : seen + piece;
      });
  CHECK(completion.text == "The answer.");
  CHECK(seen == "The answer.");
}

TEST_CASE("token ids and log-probabilities from all three sources") {
  MockApi api;
  api.answer.prompt_token_ids = {1, 2, 151643};
  api.answer.token_ids = {10, 11, 12};
  api.answer.logprobs = {-0.5f, -0.25f, -0.125f};
  api.handler = [&](const MockRequest& request) {
    if (request.path != "/tokenize") return ReplyTo(request, api.answer);
    CHECK(Contains(request.body, "\"add_generation_prompt\":true"));
    return MockReply{200,
                     {"content-type: application/json"},
                     {{0, R"({"tokens": [1, 2, 151643]})"}},
                     MockReply::End::kWhole};
  };
  for (const TokenMode mode : {TokenMode::kChat, TokenMode::kCompletions, TokenMode::kGenerate}) {
    for (const bool stream : {true, false}) {
      INFO(static_cast<int>(mode) << (stream ? ", stream" : ", whole"));
      RemoteOptions options = QuickOptions("openai:m", api.Base("openai"));
      options.token_ids = mode;
      options.stream = stream;
      const Completion completion = MakeRemotePolicy(options)->Complete(SmallRequest(), nullptr, nullptr);
      CHECK(completion.text == "Hello.");
      CHECK(completion.prompt_token_ids == api.answer.prompt_token_ids);
      CHECK(completion.token_ids == api.answer.token_ids);
      CHECK(completion.logprobs == api.answer.logprobs);
      CHECK(completion.usage.completion_tokens == 20);
      const MockRequest sent = api.requests().back();
      const Json body = *ParseJson(sent.body);
      if (mode == TokenMode::kChat) CHECK(body["return_token_ids"] == true);
      if (mode == TokenMode::kCompletions) CHECK(body["prompt"] == Json({1, 2, 151643}));
      if (mode == TokenMode::kGenerate) {
        CHECK(sent.path == "/generate");
        CHECK(body["input_ids"] == Json({1, 2, 151643}));
        CHECK(body["return_logprob"] == true);
        CHECK(body["sampling_params"]["max_new_tokens"] == 2000);
      }
    }
  }
  RemoteOptions wrong = QuickOptions("anthropic:m", api.Base("anthropic"));
  wrong.token_ids = TokenMode::kChat;
  CHECK(ErrorOf([&] { MakeRemotePolicy(wrong); }).code == ExitCode::kBadRequest);
}

TEST_CASE("several answers to one prompt") {
  MockApi api;
  api.handler = [&](const MockRequest&) {
    const std::string body =
        R"({"model": "m", "choices": [{"index": 1, "message": {"content": "two"}, "finish_reason": "length"},)"
        R"({"index": 0, "message": {"content": "one"}, "finish_reason": "stop"}],)"
        R"("usage": {"prompt_tokens": 5, "completion_tokens": 2}})";
    return MockReply{200, {"content-type: application/json"}, {{0, body}}, MockReply::End::kWhole};
  };
  Request request = SmallRequest();
  request.sampling.n = 2;
  const Completion completion = PolicyFor(api, "openai")->Complete(request, nullptr, nullptr);
  CHECK(ParseJson(api.requests()[0].body)->at("n") == 2);
  CHECK(completion.text == "one");
  REQUIRE(completion.others.size() == 1);
  CHECK((completion.others[0].text == "two" && completion.others[0].stop_reason == "length"));
}

TEST_CASE("the cost of every attempt, and a budget that ends the run") {
  testing::TempFolder folder;
  std::ofstream(folder.path() / "p.json")
      << R"({"mock-1": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-5, "max_input_tokens": 4096}})";
  MockApi api({MockFault::kTooMany});
  RemoteOptions options = QuickOptions("openai:mock-1", api.Base("openai"));
  CHECK(ErrorOf([&] {
          options.budget.usd = 1;
          MakeRemotePolicy(options);
        }).code == ExitCode::kBadRequest);
  options.prices = remote::PriceTable::Read(folder.path() / "p.json");
  options.budget.usd = 0.0007;  // one answer: 100 * 1e-6 + 20 * 1e-5 = 0.0003
  const auto policy = MakeRemotePolicy(options);
  CHECK(policy->FindWindow() == 4096);
  std::vector<RequestAttempt> attempts;
  const Request request = Watched(SmallRequest(), &attempts);
  CHECK(*policy->Complete(request, nullptr, nullptr).cost_usd == Approx(0.0003));
  CHECK((attempts[0].cost_usd == 0.0 && *attempts[1].cost_usd == Approx(0.0003)));
  policy->Complete(request, nullptr, nullptr);
  policy->Complete(request, nullptr, nullptr);
  CHECK_THROWS_AS(policy->Complete(request, nullptr, nullptr), BudgetReached);
  CHECK(api.server().requests() == 4);
}

TEST_CASE("the response cache answers the same request without sending it") {
  testing::TempFolder folder;
  for (const std::string& provider : kProviders) {
    MockApi api({MockFault::kNone, MockFault::kCut});
    RemoteOptions options = QuickOptions(provider + ":m", api.Base(provider));
    options.response_cache = folder.path() / provider;
    std::vector<RequestAttempt> attempts;
    const Request request = Watched(SmallRequest(), &attempts);
    const Completion first = MakeRemotePolicy(options)->Complete(request, nullptr, nullptr);
    const Completion again = MakeRemotePolicy(options)->Complete(request, nullptr, nullptr);
    CHECK(api.server().requests() == 1);
    CHECK((again.text == first.text && again.usage.completion_tokens == 20 && again.model == first.model));
    CHECK(again.cost_usd == 0.0);
    REQUIRE(attempts.size() == 2);
    CHECK(attempts[1].outcome == "cached");
    CHECK((attempts[1].usage && attempts[1].usage->prompt_tokens == 0));
    Request other = request;
    other.sampling.seed = 1;
    MakeRemotePolicy(options)->Complete(other, nullptr, nullptr);  // cut, then answered; only that is kept
    MakeRemotePolicy(options)->Complete(other, nullptr, nullptr);
    CHECK(api.server().requests() == 3);
    struct stat info {};
    stat(options.response_cache.c_str(), &info);
    CHECK((info.st_mode & 077) == 0);
  }
}
