// Clients that the server refuses or ends, over plain sockets: pages of a browser, unknown keys, too many, too
// large, too slow.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "policies/local/serve/http_server.h"
#include "tests/catch.h"
#include "tests/policies/local/serve/letters.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Served {
  explicit Served(HttpServerOptions http = {}, double step_seconds = 0)
      : engine(std::make_unique<FakeRunner>(Options(step_seconds))), api(engine, test::LettersModel()) {
    http.port = 0;
    server = std::make_unique<HttpServer>(api, http);
  }
  static FakeRunner::Options Options(double step_seconds) {
    FakeRunner::Options options = test::LettersRunner();
    if (step_seconds > 0) options.step_seconds = step_seconds;
    return options;
  }
  Engine engine;
  ModelApi api;
  std::unique_ptr<HttpServer> server;
};

// A client that sends what it is told.
class Client {
 public:
  explicit Client(const Served& served) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(served.server->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    const timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }
  // Until the server ends the connection.
  std::string Rest() {
    std::string reply;
    char buffer[4096];
    for (ssize_t count = 0; (count = recv(fd_, buffer, sizeof(buffer), 0)) > 0;)
      reply.append(buffer, static_cast<size_t>(count));
    return reply;
  }
  // Until it contains `part`, or the server is silent for ten seconds.
  std::string Until(const std::string& part) {
    std::string reply;
    char byte = 0;
    while (reply.find(part) == std::string::npos && recv(fd_, &byte, 1, 0) == 1) reply += byte;
    return reply;
  }

 private:
  const int fd_;
};

std::string Post(const std::string& headers, const std::string& body) {
  return "POST /tokenize HTTP/1.1\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

constexpr const char* kJson = "Host: localhost\r\nContent-Type: application/json\r\n";
constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

double SecondsOf(const std::function<void()>& work) {
  const auto begun = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

std::string Exchanged(const Served& served, const std::string& request) {
  Client client(served);
  client.Send(request);
  return client.Rest();
}

TEST_CASE("what a page of a browser can send is refused, in OpenAI's form, and ends the connection",
          "[serve]") {
  const Served served;
  const std::string body = R"({"prompt": "abc"})";
  const auto check = [&](const std::string& request, const char* status, const char* says) {
    const std::string reply = Exchanged(served, request);  // ends, so the connection was closed
    INFO(request << "\n" << reply);
    CHECK(reply.starts_with(std::string("HTTP/1.1 ") + status));
    CHECK(reply.find("{\"error\":{\"message\":\"") != std::string::npos);
    CHECK(reply.find(says) != std::string::npos);
    CHECK(reply.find("Access-Control") == std::string::npos);
    CHECK(reply.find("\"tokens\"") == std::string::npos);
  };
  check(Post("Host: evil.example\r\nContent-Type: application/json\r\n", body), "403", "host_not_allowed");
  check(Post("Content-Type: application/json\r\n", body), "400", "one Host header");
  check(Post(std::string(kJson) + "Origin: https://evil.example\r\n", body), "403", "origin_not_allowed");
  check(Post("Host: localhost\r\nContent-Type: text/plain\r\n", body), "415", "application/json");
  check("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403", "host_not_allowed");
  check("GET /metrics HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n", "403", "origin_not_allowed");
  check(
      "OPTIONS /tokenize HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n",
      "403", "origin_not_allowed");
  check("GET /v1/models HTTP/1.1\r\nHost: a\x1b[31m\r\n\r\n", "4", "");
  Client honest(served);
  honest.Send(Post(kJson, body));
  CHECK(honest.Until("\"tokens\":[").find(" 200 ") != std::string::npos);
}

TEST_CASE("a second request behind a refused one is not read", "[serve]") {
  const Served served;
  const std::string inner = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string reply =
      Exchanged(served, Post("Host: localhost\r\nContent-Type: text/plain\r\n", inner) + inner);
  CHECK(reply.find(" 415 ") != std::string::npos);
  CHECK(reply.find("\"object\"") == std::string::npos);
  // A body that a GET has is no request either.
  const std::string other = Exchanged(served, "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                                                  std::to_string(inner.size()) + "\r\n\r\n" + inner);
  CHECK(other.find("\"ok\"") != std::string::npos);
  CHECK(other.find("\"object\"") == std::string::npos);
}

TEST_CASE("with keys, a request without one gets 401", "[serve]") {
  const fs::path file = fs::temp_directory_path() / ("kevin-limits-keys-" + std::to_string(getpid()));
  std::ofstream(file) << "key-number-one-0123456789\n";
  HttpServerOptions http;
  http.api_keys = file;
  const Served served(http);
  fs::remove(file);
  CHECK(served.server->Warnings().size() == 1);  // the test's umask lets others read it
  const std::string none = Exchanged(served, Post(kJson, "{}"));
  CHECK(none.starts_with("HTTP/1.1 401"));
  CHECK(none.find("WWW-Authenticate: Bearer") != std::string::npos);
  CHECK(none.find("\"code\":\"invalid_api_key\"") != std::string::npos);
  const std::string wrong = Exchanged(
      served, Post(std::string(kJson) + "Authorization: Bearer key-number-two-0123456789\r\n", "{}"));
  CHECK(wrong.starts_with("HTTP/1.1 401"));
  const std::string known = Exchanged(
      served,
      Post(std::string(kJson) + "Connection: close\r\nAuthorization: Bearer key-number-one-0123456789\r\n",
           R"({"prompt": "abc"})"));
  CHECK(known.find("\"tokens\":[") != std::string::npos);
}

TEST_CASE("headers and bodies that come too slowly end the connection, byte by byte too", "[serve]") {
  HttpServerOptions http;
  http.header_s = 0.5, http.body_s = 0.5, http.linger_s = 0.1;
  const Served served(http);
  const auto drip = [&](const std::string& begin, const std::string& endless) {
    Client client(served);
    client.Send(begin);
    for (int i = 0; i < 40 && client.Send(endless); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return client.Rest();
  };
  std::string reply;
  CHECK(SecondsOf([&] { reply = drip("GET /health HTTP/1.1\r\n", "X: y\r\n"); }) < 1.9);
  CHECK(reply.find(" 200 ") == std::string::npos);
  CHECK(SecondsOf([&] {
          drip("POST /tokenize HTTP/1.1\r\n" + std::string(kJson) + "Content-Length: 1000\r\n\r\n", "x");
        }) < 1.9);
  Client client(served);
  client.Send("POST /tokenize HTTP/1.1\r\n" + std::string(kJson) + "Content-Length: 1000\r\n\r\n{");
  CHECK(client.Rest().find(" 408 ") != std::string::npos);
}

TEST_CASE("headers, one body and all bodies together have limits", "[serve]") {
  HttpServerOptions http;
  http.header_bytes = 4000, http.body_bytes = 100000, http.total_body_bytes = 150000, http.linger_s = 0.1;
  const Served served(http);
  std::string many;
  for (int i = 0; i < 500; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  CHECK(Exchanged(served, "GET /health HTTP/1.1\r\nHost: localhost\r\n" + many + "\r\n").find(" 431 ") !=
        std::string::npos);
  // Said to be too large: refused before it is sent.
  CHECK(
      Exchanged(served, "POST /tokenize HTTP/1.1\r\n" + std::string(kJson) + "Content-Length: 100001\r\n\r\n")
          .find(" 413 ") != std::string::npos);
  // Without a length: refused when it is.
  const std::string chunk = "4000\r\n" + std::string(0x4000, 'x') + "\r\n";
  std::string chunks;
  for (int i = 0; i < 10; ++i) chunks += chunk;
  CHECK(Exchanged(served, "POST /tokenize HTTP/1.1\r\n" + std::string(kJson) +
                              "Transfer-Encoding: chunked\r\n\r\n" + chunks + "0\r\n\r\n")
            .find(" 413 ") != std::string::npos);
  // Two that fit alone and not together.
  const std::string large =
      "POST /tokenize HTTP/1.1\r\n" + std::string(kJson) + "Content-Length: 90000\r\n\r\n";
  {
    Client first(served), second(served);
    first.Send(large + std::string(89999, ' '));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    second.Send(large + std::string(89999, ' '));
    const std::string reply = second.Until("\"error\"");
    INFO(reply);
    CHECK(reply.find(" 503 ") != std::string::npos);
    CHECK(reply.find("Retry-After: 1") != std::string::npos);
  }
  // What they held was given back.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const std::string body = R"({"prompt": "abc"})" + std::string(90000, ' ');
  CHECK(Exchanged(served, Post(std::string(kJson) + "Connection: close\r\n", body)).find(" 200 ") !=
        std::string::npos);
}

TEST_CASE("at the limit of connections an idle one makes room; a request in progress stays", "[serve]") {
  HttpServerOptions http;
  http.connections = 2;
  const Served served(http, 0.01);
  Client busy(served), idle(served);
  const std::string body = R"({"prompt": "abc", "max_tokens": 400, "ignore_eos": true})";
  busy.Send("POST /v1/completions HTTP/1.1\r\n" + std::string(kJson) +
            "Connection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  idle.Send(kHealth);
  REQUIRE(idle.Until("\"ok\"}").find(" 200 ") != std::string::npos);
  Client third(served);
  third.Send(kHealth);
  const double seconds = SecondsOf([&] { CHECK(third.Until("\"ok\"").find(" 200 ") != std::string::npos); });
  CHECK(seconds < 2);  // the busy one takes 4 s, the idle one could stay for 30 s
  CHECK(idle.Rest().empty());
  CHECK(busy.Rest().find("\"finish_reason\":\"length\"") != std::string::npos);
}

TEST_CASE("a server ends at once while clients are in the middle of a request", "[serve]") {
  auto served = std::make_unique<Served>();
  Client headers(*served), body(*served);
  headers.Send("GET /health HT");
  body.Send("POST /tokenize HTTP/1.1\r\n" + std::string(kJson) + "Content-Length: 1000\r\n\r\n{");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(SecondsOf([&] { served.reset(); }) < 3);
}

}  // namespace
}  // namespace kevin::local
