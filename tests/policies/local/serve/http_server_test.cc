// The server over HTTP, asked by our own client and by plain sockets.

#include "policies/local/serve/http_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "policies/remote/remote_policy.h"
#include "tests/catch.h"
#include "tests/policies/local/serve/letters.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

struct Served {
  explicit Served(FakeRunner::Options with = test::LettersRunner(), HttpServerOptions http = {})
      : options(with), engine(std::make_unique<FakeRunner>(with)), api(engine, test::LettersModel()) {
    http.port = 0;
    server = std::make_unique<HttpServer>(api, http);
  }
  RemoteOptions Client(TokenMode tokens, bool stream) const {
    RemoteOptions client;
    client.endpoint = remote::ParseSpec("openai:letters@" + server->Url(), "");
    client.token_ids = tokens;
    client.stream = stream;
    client.attempts = 1;
    client.extra = R"({"logprobs_mode": "processed_logprobs"})";
    return client;
  }
  const FakeRunner::Options options;
  Engine engine;
  ModelApi api;
  std::unique_ptr<HttpServer> server;
};

Request Ask(const std::string& text, uint64_t seed) {
  Request request;
  request.messages = {{"user", text}};
  request.sampling.max_tokens = 60;
  request.sampling.temperature = 0.7;
  request.sampling.seed = seed;
  return request;
}

void CheckAnswer(const Completion& completion, const Served& served, const Request& request) {
  const auto prompt = test::Letters().Encode("user:" + request.messages[0].content + "\nassistant:", false);
  TokenSampling sampling;
  sampling.temperature = 0.7f;
  sampling.seed = request.sampling.seed;
  const auto truth = FakeRunner::TrueAnswer(served.options, prompt, sampling, request.sampling.max_tokens);
  CHECK(completion.prompt_token_ids == prompt);
  REQUIRE(!completion.token_ids.empty());
  REQUIRE(completion.token_ids.size() <= truth.size());
  REQUIRE(completion.logprobs.size() == completion.token_ids.size());
  for (size_t i = 0; i < completion.token_ids.size(); ++i) {
    CHECK(completion.token_ids[i] == truth[i].id);
    CHECK(completion.logprobs[i] == Approx(truth[i].logprob).margin(1e-6));
  }
  CHECK(completion.usage.prompt_tokens == static_cast<int64_t>(prompt.size()));
  CHECK(completion.usage.completion_tokens == static_cast<int64_t>(completion.token_ids.size()));
  CHECK(completion.stop_reason == (completion.token_ids.back() == test::kEnd ? "stop" : "length"));
}

TEST_CASE("our own client gets ids and log-probabilities, by every way it has", "[serve]") {
  const fs::path folder = fs::temp_directory_path() / ("kevin-serve-test-" + std::to_string(getpid()));
  fs::create_directories(folder);
  for (const bool on_unix : {false, true}) {
    HttpServerOptions http;
    if (on_unix) http.unix_socket = (folder / "socket").string();
    const Served served(test::LettersRunner(), http);
    for (const TokenMode mode : {TokenMode::kChat, TokenMode::kCompletions}) {
      for (const bool stream : {true, false}) {
        INFO(served.server->Url() << ", stream " << stream);
        const auto policy = MakeRemotePolicy(served.Client(mode, stream));
        const Request request = Ask("Hello", 5);
        std::string shown;
        CheckAnswer(policy->Complete(request, nullptr, [&](const std::string& piece) { shown += piece; }),
                    served, request);
        CHECK(policy->FindWindow() == 600);
      }
    }
    if (on_unix)
      CHECK((fs::status(http.unix_socket).permissions() & fs::perms::others_all) == fs::perms::none);
  }
  CHECK(!fs::exists(folder / "socket"));
  fs::remove_all(folder);
}

TEST_CASE("64 streams at once are all whole and share steps", "[serve]") {
  FakeRunner::Options options = test::LettersRunner();
  options.step_seconds = 0.002;
  const Served served(options);
  const auto policy = MakeRemotePolicy(served.Client(TokenMode::kChat, true));
  std::vector<std::thread> threads;
  std::vector<Completion> completions(64);
  for (size_t i = 0; i < completions.size(); ++i) {
    threads.emplace_back(
        [&, i] { completions[i] = policy->Complete(Ask("Hello " + std::to_string(i % 8), i), nullptr, {}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < completions.size(); ++i)
    CheckAnswer(completions[i], served, Ask("Hello " + std::to_string(i % 8), i));
  const EngineStatistics statistics = served.engine.Statistics();
  CHECK(statistics.step_sequences > 8 * statistics.steps);
}

TEST_CASE("several answers, stop texts and prompts too long come through", "[serve]") {
  const Served served;
  const auto policy = MakeRemotePolicy(served.Client(TokenMode::kChat, true));
  Request request = Ask("Hello", 1);
  request.sampling.n = 3;
  const Completion completion = policy->Complete(request, nullptr, {});
  REQUIRE(completion.others.size() == 2);
  CHECK(completion.others[0].token_ids != completion.token_ids);
  CHECK(completion.others[0].logprobs.size() == completion.others[0].token_ids.size());
  CHECK_THROWS_AS(policy->Complete(Ask(std::string(700, 'x'), 1), nullptr, {}), PromptTooLong);
}

// --- Plain sockets ---

int Connected(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

std::string Exchanged(int port, const std::string& request) {
  const int fd = Connected(port);
  size_t sent = 0;
  while (sent < request.size()) {
    const ssize_t count = send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  std::string reply;
  char buffer[4096];
  for (ssize_t count = 0; (count = recv(fd, buffer, sizeof(buffer), 0)) > 0;)
    reply.append(buffer, static_cast<size_t>(count));
  close(fd);
  return reply;
}

std::string Post(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST_CASE("whatever is wrong with a request is answered in OpenAI's form", "[serve]") {
  HttpServerOptions http;
  http.body_bytes = 10000;
  const Served served(test::LettersRunner(), http);
  const int port = served.server->port();
  const auto check = [&](const std::string& request, const char* status, const char* says) {
    const std::string reply = Exchanged(port, request);
    INFO(reply.substr(0, 300));
    CHECK(reply.find(status) != std::string::npos);
    CHECK(reply.find("{\"error\":{\"message\":\"") != std::string::npos);
    CHECK(reply.find(says) != std::string::npos);
  };
  check(Post("/v1/completions", "{"), " 400 ", "no JSON");
  check(Post("/v1/nothing", "{}"), " 404 ", "not_found");
  check(Post("/v1/completions", std::string(20000, 'x')), " 413 ", "too large");
  check("GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", " 404 ", "not_found");
  check("PUT /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        " 404 ", "");
  check("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + std::string(20000, 'x') +
            "\r\n\r\n",
        " 400 ", "");
  check("nonsense\r\n\r\n", " 400 ", "");
}

TEST_CASE("a client that hangs up frees its place, streaming or not", "[serve]") {
  FakeRunner::Options options = test::LettersRunner();
  options.step_seconds = 0.005;
  const Served served(options);
  for (const char* stream : {"true", "false"}) {
    const std::string body =
        std::string(R"({"prompt": "abc", "max_tokens": 590, "ignore_eos": true, "stream": )") + stream + "}";
    const int64_t before = served.engine.Statistics().answers;
    const int fd = Connected(served.server->port());
    const std::string request = Post("/v1/completions", body);
    REQUIRE(send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    REQUIRE(served.engine.Statistics().running == 1);
    close(fd);
    EngineStatistics now = served.engine.Statistics();
    for (int i = 0; i < 300 && now.running > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      now = served.engine.Statistics();
    }
    INFO("stream " << stream);
    CHECK(now.answers == before + 1);
    CHECK(now.running == 0);
    CHECK(now.generated_tokens < 500);
  }
}

TEST_CASE("a server ends at once, whatever is in progress", "[serve]") {
  FakeRunner::Options options = test::LettersRunner();
  options.step_seconds = 0.02;
  auto served = std::make_unique<Served>(options);
  const int fd = Connected(served->server->port());
  const std::string request =
      Post("/v1/completions", R"({"prompt": "abc", "max_tokens": 590, "ignore_eos": true})");
  REQUIRE(send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = std::chrono::steady_clock::now();
  served.reset();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
  close(fd);
}

TEST_CASE("an address that is taken is said", "[serve]") {
  const Served served;
  Engine engine(std::make_unique<FakeRunner>(test::LettersRunner()));
  ModelApi api(engine, test::LettersModel());
  HttpServerOptions http;
  http.unix_socket = "/no/such/folder/socket";
  try {
    const HttpServer second(api, http);
    FAIL("it was bound");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("/no/such/folder/socket: cannot be listened on") == 0);
  }
}

}  // namespace
}  // namespace kevin::local
