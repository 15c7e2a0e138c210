// Remote policies against a mock API: failures, cancellation, limits and connections.

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

TEST_CASE("every fault in every format is retried, every attempt is reported, no text is lost") {
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
                                   {MockFault::kMalformed, 200, "the answer is not JSON"},
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

TEST_CASE("an answer without usage has an unknown cost") {
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

TEST_CASE("Retry-After is respected; a delay that is too long is an error") {
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

TEST_CASE("an unavailable API is Error kBroken after the last attempt, with the cause") {
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

TEST_CASE("many callers of an unavailable API: few requests, and all get the error") {
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

TEST_CASE("a refused request is not repeated, and its key is not shown") {
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

TEST_CASE("cancelling ends a silent stream quickly") {
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

TEST_CASE("an endless stream ends at the request's limit") {
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

TEST_CASE("an exception from on_attempt ends the call and leaves the policy usable") {
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

// `openssl s_server` with a self-signed certificate: it prints what it receives and sends its input.
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

TEST_CASE("a server with an unverified certificate gets no key; one that the user trusts does") {
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
