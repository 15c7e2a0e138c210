// Remote policies against a mock API: what is sent, what is read, and what becomes of every fault.

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
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

TEST_CASE("every format: what is sent") {
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

TEST_CASE("a thought that the template opened is taken back from who watches") {
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

TEST_CASE("every fault in every format: asked again, every attempt told, nothing lost") {
  struct Case {
    MockFault fault;
    std::optional<int> status;
    const char* error;
  };
  const std::vector<Case> cases = {{MockFault::kTooMany, 429, "HTTP 429"},
                                   {MockFault::kTooManyWait, 429, "HTTP 429"},
                                   {MockFault::kOverloaded, 529, "HTTP 529"},
                                   {MockFault::kServerError, 500, "HTTP 500: mock api_error"},
                                   {MockFault::kStall, 200, "nothing new for 0.4 s"},
                                   {MockFault::kSlowLoris, 200, "nothing new for 0.4 s"},
                                   {MockFault::kCut, 200, ""},
                                   {MockFault::kMalformed, 200, "the answer is no JSON"},
                                   {MockFault::kErrorInStream, 200, "Overloaded"},
                                   {MockFault::kWrongType, 200, "text/html"}};
  for (const std::string& provider : kProviders) {
    for (const Case& c : cases) {
      INFO(provider << ", fault " << static_cast<int>(c.fault));
      MockApi api({c.fault});
      api.answer.text = "A text that is long enough to be cut in the middle of its events.";
      std::vector<RequestAttempt> attempts;
      std::string seen;
      const Completion completion =
          PolicyFor(api, provider)
              ->Complete(Watched(SmallRequest(), &attempts), nullptr,
                         [&](const std::string& piece) { seen = piece.empty() ? "" : seen + piece; });
      CHECK(completion.text == api.answer.text);
      CHECK(seen == completion.text);
      CHECK(completion.usage.completion_tokens == 20);
      REQUIRE(attempts.size() == 2);
      CHECK(attempts[0].outcome == "failed");
      CHECK(attempts[0].status == c.status);
      CHECK(Contains(attempts[0].error, c.error));
      CHECK_FALSE(attempts[0].error.empty());
      CHECK_FALSE(attempts[0].usage);
      CHECK(attempts[0].cost_usd.has_value() == (*c.status != 200));
      CHECK(attempts[1].outcome == "answered");
      CHECK(attempts[1].number == 2);
      CHECK(attempts[1].request == attempts[0].request);
      CHECK(api.server().requests() == 2);
    }
  }
}

TEST_CASE("an answer that nobody counted is an answer of unknown cost") {
  for (const std::string& provider : kProviders) {
    MockApi api({MockFault::kNoUsage});
    std::vector<RequestAttempt> attempts;
    const Completion completion =
        PolicyFor(api, provider)->Complete(Watched(SmallRequest(), &attempts), nullptr, nullptr);
    CHECK(completion.text == "Hello.");
    CHECK(completion.usage.completion_tokens == 0);
    REQUIRE(attempts.size() == 1);
    CHECK_FALSE(attempts[0].usage);
    CHECK_FALSE(attempts[0].cost_usd);
  }
}

TEST_CASE("Retry-After is waited for; one that is too long is given up") {
  MockApi api({MockFault::kTooManyWait});
  api.retry_after_s = 0.3;
  std::vector<RequestAttempt> attempts;
  const auto start = std::chrono::steady_clock::now();
  PolicyFor(api, "openai")->Complete(Watched(SmallRequest(), &attempts), nullptr, nullptr);
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >= 0.3);
  CHECK(attempts[0].retry_after_s == 0.3);

  MockApi never({MockFault::kTooManyWait});
  never.retry_after_s = 3600;
  const auto error = ErrorOf([&] { PolicyFor(never, "openai")->Complete(SmallRequest(), nullptr, nullptr); });
  CHECK(error.code == ExitCode::kBroken);
  CHECK(never.server().requests() == 1);
}

TEST_CASE("a dead API is Error kBroken after the last attempt, and names what happened") {
  MockApi api(std::vector<MockFault>(100, MockFault::kServerError));
  std::vector<RequestAttempt> attempts;
  const auto policy = PolicyFor(api, "anthropic");
  const auto error = ErrorOf([&] { policy->Complete(Watched(SmallRequest(), &attempts), nullptr, nullptr); });
  CHECK(error.code == ExitCode::kBroken);
  CHECK(Contains(error.what, "HTTP 500: mock api_error (3 attempts)"));
  CHECK(Contains(error.next_step, "--continue"));
  CHECK(attempts.size() == 3);

  RemoteOptions nobody = QuickOptions("openai:m", "http://127.0.0.1:1/v1");
  const auto refused = ErrorOf([&] { MakeRemotePolicy(nobody)->Complete(SmallRequest(), nullptr, nullptr); });
  CHECK(refused.code == ExitCode::kBroken);
  CHECK(Contains(refused.what, "connect"));
}

TEST_CASE("many callers of a dead API: few requests, and all are told") {
  MockApi api(std::vector<MockFault>(10000, MockFault::kOverloaded));
  RemoteOptions options = QuickOptions("openai:m", api.Base("openai"));
  options.attempts = 50;
  const auto policy = MakeRemotePolicy(options);
  std::atomic<int> broken = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 16; ++i) {
    callers.emplace_back([&] {
      const auto error = ErrorOf([&] { policy->Complete(SmallRequest(), nullptr, nullptr); });
      if (error.code == ExitCode::kBroken && Contains(error.what, "HTTP 529")) ++broken;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(broken == 16);
  CHECK(api.server().requests() < 60);
  const int before = api.server().requests();
  CHECK(ErrorOf([&] { policy->Complete(SmallRequest(), nullptr, nullptr); }).code == ExitCode::kBroken);
  CHECK(api.server().requests() == before);
}

TEST_CASE("a refusal is not repeated, and its key is not shown") {
  for (const int status : {400, 401, 403, 404, 422}) {
    MockApi api;
    api.handler = [&](const MockRequest&) {
      const std::string body = R"({"error": {"message": "Incorrect API key provided: sk-test-0123456789"}})";
      return MockReply{status, {"content-type: application/json"}, {{0, body}}, MockReply::End::kWhole};
    };
    RemoteOptions options = QuickOptions("openai:m", api.Base("openai"));
    options.record = true;
    const auto policy = MakeRemotePolicy(options);
    std::vector<RequestAttempt> attempts;
    const auto error =
        ErrorOf([&] { policy->Complete(Watched(SmallRequest(), &attempts), nullptr, nullptr); });
    CHECK(error.code == ExitCode::kBadRequest);
    CHECK_FALSE(error.next_step.empty());
    CHECK_FALSE(Contains(error.what, "sk-test"));
    REQUIRE(attempts.size() == 1);
    CHECK_FALSE(Contains(attempts[0].error + attempts[0].response + attempts[0].request, "sk-test"));
    CHECK(attempts[0].cost_usd == 0.0);
    policy->RequireSampling({});
    ErrorOf([&] { policy->Complete(SmallRequest(), nullptr, nullptr); });
    CHECK(api.server().requests() == (status == 401 || status == 403 ? 1 : 2));
  }
}

TEST_CASE("no quota left, and a prompt that is too long") {
  MockApi api;
  std::string body = R"({"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}})";
  int status = 429;
  api.handler = [&](const MockRequest&) {
    return MockReply{status, {"content-type: application/json"}, {{0, body}}, MockReply::End::kWhole};
  };
  const auto error = ErrorOf([&] { PolicyFor(api, "openai")->Complete(SmallRequest(), nullptr, nullptr); });
  CHECK((error.code == ExitCode::kBroken && Contains(error.next_step, "add credit")));
  CHECK(api.server().requests() == 1);
  status = 400;
  body = R"({"error": {"message": "This model's maximum context length is 8192 tokens."}})";
  CHECK_THROWS_AS(PolicyFor(api, "openai")->Complete(SmallRequest(), nullptr, nullptr), PromptTooLong);
}

TEST_CASE("cancelling ends a silent stream soon") {
  for (const std::string& provider : kProviders) {
    MockApi api({MockFault::kStall});
    RemoteOptions options = QuickOptions(provider + ":m", api.Base(provider));
    options.http.stall_s = 30;
    const auto policy = MakeRemotePolicy(options);
    CancelToken cancel = false;
    std::thread interrupt([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      cancel = true;
    });
    std::vector<RequestAttempt> attempts;
    const auto start = std::chrono::steady_clock::now();
    const Completion completion = policy->Complete(Watched(SmallRequest(), &attempts), &cancel, nullptr);
    interrupt.join();
    CHECK(completion.stop_reason == "cancelled");
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 2);
    REQUIRE(attempts.size() == 1);
    CHECK(attempts[0].outcome == "cancelled");
    CHECK_FALSE(attempts[0].cost_usd);
  }
}

TEST_CASE("a stream that goes on and on ends at the request's limit") {
  MockApi api;
  api.handler = [&](const MockRequest&) {
    return MockReply{200,
                     {"content-type: text/event-stream"},
                     std::vector<MockReply::Piece>(1000, {0.02, ": still here\n\n"}),
                     MockReply::End::kWhole};
  };
  RemoteOptions options = QuickOptions("openai:m", api.Base("openai"));
  options.attempts = 1;
  options.http.total_s = 0.6;
  const auto error = ErrorOf([&] { MakeRemotePolicy(options)->Complete(SmallRequest(), nullptr, nullptr); });
  CHECK(Contains(error.what, "not done after 0.6 s"));
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
      options.tokens = mode;
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
  wrong.tokens = TokenMode::kChat;
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

TEST_CASE("cost: what every attempt came to, and a budget that ends it") {
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

TEST_CASE("a server on a Unix socket, connections kept, models listed") {
  testing::TempFolder folder;
  const auto path = folder.path() / "model.sock";
  MockApi api({}, path);
  api.handler = [&](const MockRequest& request) {
    if (request.method == "POST") return ReplyTo(request, api.answer);
    return MockReply{
        200,
        {"content-type: application/json"},
        {{0, R"({"data": [{"id": "other", "max_model_len": 5}, {"id": "m", "max_model_len": 2048}]})"}},
        MockReply::End::kWhole};
  };
  const auto policy = MakeRemotePolicy(QuickOptions("openai:m", "unix:" + path.string()));
  std::vector<RequestAttempt> attempts;
  for (int i = 0; i < 3; ++i) {
    CHECK(policy->Complete(Watched(SmallRequest(), &attempts), nullptr, nullptr).text == "Hello.");
  }
  CHECK(api.server().connections() == 1);
  CHECK(attempts[0].url == "unix:" + path.string());
  CHECK(policy->FindWindow() == 2048);
  CHECK(policy->Name() == "openai:m@unix:" + path.string());
}

TEST_CASE("a proxy of the environment is used, and not for Unix sockets") {
  testing::TempFolder folder;
  const auto path = folder.path() / "model.sock";
  MockApi proxy, local({}, path);
  const Variable variable("http_proxy", proxy.server().Url().c_str());
  MakeRemotePolicy(QuickOptions("openai:m", "http://nowhere.invalid/v1"))
      ->Complete(SmallRequest(), nullptr, {});
  REQUIRE(proxy.requests().size() == 1);
  CHECK(proxy.requests()[0].path == "http://nowhere.invalid/v1/chat/completions");
  MakeRemotePolicy(QuickOptions("openai:m", "unix:" + path.string()))->Complete(SmallRequest(), nullptr, {});
  CHECK(local.requests().size() == 1);
  CHECK(proxy.requests().size() == 1);
}

TEST_CASE("TLS that fails is not an answer") {
  MockApi api;  // speaks no TLS
  RemoteOptions options =
      QuickOptions("openai:m", "https://127.0.0.1:" + std::to_string(api.server().port()));
  std::vector<RequestAttempt> attempts;
  const auto error = ErrorOf(
      [&] { MakeRemotePolicy(options)->Complete(Watched(SmallRequest(), &attempts), nullptr, nullptr); });
  CHECK(error.code == ExitCode::kBroken);
  CHECK(attempts.size() == 3);
  CHECK_FALSE(attempts[0].status);
  CHECK(api.requests().empty());

  options.ca_file = "/nowhere/ca.pem";
  attempts.clear();
  const auto untrusted = ErrorOf(
      [&] { MakeRemotePolicy(options)->Complete(Watched(SmallRequest(), &attempts), nullptr, nullptr); });
  CHECK(untrusted.code == ExitCode::kBroken);
  CHECK(Contains(untrusted.next_step, "--ca-file"));
  CHECK(attempts.size() == 1);
}

TEST_CASE("what on_attempt throws ends the call and leaves the policy usable") {
  MockApi api;
  RemoteOptions options = QuickOptions("openai:m", api.Base("openai"));
  options.rates.concurrent = 1;
  const auto policy = MakeRemotePolicy(options);
  Request request = SmallRequest();
  request.on_attempt = [](const RequestAttempt&) { throw Error(ExitCode::kBroken, "disk full"); };
  CHECK(ErrorOf([&] { policy->Complete(request, nullptr, nullptr); }).what == "disk full");
  CHECK(api.server().requests() == 0);
  CHECK(policy->Complete(SmallRequest(), nullptr, nullptr).text == "Hello.");
}

namespace {

// `openssl s_server` with a certificate of its own: it prints what it is sent and sends what is written to
// it.
class TlsServer {
 public:
  explicit TlsServer(const std::filesystem::path& folder) : folder_(folder) {
    const std::string at = folder.string();
    made_ = std::system(("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
                         "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout " +
                         at + "/key.pem -out " + at + "/cert.pem >/dev/null 2>&1")
                            .c_str()) == 0;
    if (!made_) return;
    port_ = 20000 + getpid() % 20000;
    // Its input stays open, and it is the process that the shell was.
    const std::string command =
        "echo $$ >" + at + "/pid; exec openssl s_server -quiet -accept 127.0.0.1:" + std::to_string(port_) +
        " -key " + at + "/key.pem -cert " + at + "/cert.pem >" + at + "/seen 2>/dev/null";
    in_ = popen(command.c_str(), "w");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  ~TlsServer() {
    if (!made_) return;
    std::ifstream file(folder_ / "pid");
    int pid = 0;
    if (file >> pid) kill(pid, SIGTERM);
    pclose(in_);
  }
  bool made() const { return made_; }
  std::string Url() const { return "https://127.0.0.1:" + std::to_string(port_) + "/v1"; }
  std::string Certificate() const { return (folder_ / "cert.pem").string(); }
  std::string Seen() const {
    std::ifstream file(folder_ / "seen");
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::filesystem::path folder_;
  bool made_ = false;
  int port_ = 0;
  std::FILE* in_ = nullptr;
};

}  // namespace

TEST_CASE("a certificate that nobody vouches for gets no key; one that the person trusts does") {
  testing::TempFolder folder;
  const TlsServer server(folder.path());
  if (!server.made()) {
    WARN("there is no openssl program to make a certificate with");
    return;
  }
  RemoteOptions options = QuickOptions("openai:m", server.Url());
  options.attempts = 1;
  const auto untrusted =
      ErrorOf([&] { MakeRemotePolicy(options)->Complete(SmallRequest(), nullptr, nullptr); });
  CHECK(untrusted.code == ExitCode::kBroken);
  CHECK(Contains(untrusted.what, "certificate"));
  CHECK(Contains(untrusted.next_step, "--ca-file"));
  CHECK_FALSE(Contains(server.Seen(), "sk-test"));
  options.ca_file = server.Certificate();
  options.http.stall_s = 1;  // it never answers
  const auto trusted =
      ErrorOf([&] { MakeRemotePolicy(options)->Complete(SmallRequest(), nullptr, nullptr); });
  CHECK(Contains(trusted.what, "nothing new for 1 s"));
  CHECK(Contains(server.Seen(), "POST /v1/chat/completions"));
}
