// Which requests the server answers: Host, Origin, Content-Type and keys.

#include "policies/local/serve/request_gate.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "env/error.h"
#include "tests/catch.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;
using Headers = std::multimap<std::string, std::string>;

// 0: passes; else the status of the refusal.
int StatusOf(const RequestGate& gate, const std::string& method, const Headers& headers,
             const std::string& path = "/v1/completions") {
  const auto refusal = gate.Refusal({method, path, [&](const char* name) {
                                       std::vector<std::string> values;
                                       const auto [first, last] = headers.equal_range(name);
                                       for (auto at = first; at != last; ++at) values.push_back(at->second);
                                       return values;
                                     }});
  return refusal ? refusal->status() : 0;
}

int HostStatus(const RequestGate& gate, const std::string& host) {
  return StatusOf(gate, "GET", {{"Host", host}});
}

class KeyFile {
 public:
  explicit KeyFile(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    fs::permissions(path_, static_cast<fs::perms>(mode));
  }
  ~KeyFile() { fs::remove(path_); }
  const fs::path& path() const { return path_; }

 private:
  const fs::path path_ = fs::temp_directory_path() / ("kevin-keys-" + std::to_string(getpid()));
};

std::string Message(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return std::string(error.what()) + " | " + error.next_step();
  }
  return "";
}

TEST_CASE("the Host header must name the server: a page whose name was pointed here sends its own",
          "[serve]") {
  const RequestGate gate{HttpServerOptions{}};
  for (const char* host :
       {"localhost", "LocalHost:8000", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "localhost."})
    CHECK(HostStatus(gate, host) == 0);
  for (const char* host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example",
        "192.168.1.5:8000", "[2001:db8::1]", "0.0.0.0", "localhost@evil.example", "localhost:80:80",
        "localhost:x", "[::1", "127.1", "2130706433"}) {
    INFO(host);
    CHECK(HostStatus(gate, host) == 403);
  }
  CHECK(HostStatus(gate, "") == 403);
  CHECK(StatusOf(gate, "GET", {}) == 400);
  CHECK(StatusOf(gate, "GET", {{"Host", "localhost"}, {"Host", "evil.example"}}) == 400);
}

TEST_CASE("names are added with --allow-host; an address of a network has its own name", "[serve]") {
  HttpServerOptions options;
  options.allowed_hosts = {"gpu1.example.org"};
  const RequestGate local(options);
  CHECK(HostStatus(local, "GPU1.example.org:8000") == 0);
  CHECK(HostStatus(local, "gpu2.example.org") == 403);
  options.host = "0.0.0.0", options.no_authentication = true;
  const RequestGate open(options);
  CHECK(HostStatus(open, "192.168.1.5:8000") == 0);
  CHECK(HostStatus(open, "gpu1.example.org") == 0);
  char name[256] = {};
  REQUIRE(gethostname(name, sizeof name - 1) == 0);
  CHECK(HostStatus(open, name) == 0);
  CHECK(HostStatus(open, "evil.example") == 403);
  options.host = "192.168.1.5";
  const RequestGate one(options);
  CHECK(HostStatus(one, "192.168.1.5:8000") == 0);
  CHECK(HostStatus(one, "192.168.1.6:8000") == 403);
  for (const char* bad : {"a b", "", "a:1", "http://a"}) {
    options.allowed_hosts = {bad};
    CHECK(Message([&] { const RequestGate gate(options); }).find("is no host name") != std::string::npos);
  }
}

TEST_CASE("pages of other origins are refused, and POSTs that a page could send", "[serve]") {
  const RequestGate gate{HttpServerOptions{}};
  const Headers json = {{"Host", "localhost:8000"}, {"Content-Type", "application/json"}};
  const auto with = [&](const std::string& name, const std::string& value) {
    Headers headers = json;
    headers.emplace(name, value);
    return headers;
  };
  CHECK(StatusOf(gate, "POST", json) == 0);
  CHECK(StatusOf(gate, "POST", with("Origin", "http://localhost:8000")) == 0);
  for (const char* origin : {"https://evil.example", "null", "http://localhost:3000",
                             "https://localhost:8000", "", "http://localhost:8000.evil.example"}) {
    INFO(origin);
    CHECK(StatusOf(gate, "POST", with("Origin", origin)) == 403);
    CHECK(StatusOf(gate, "GET", with("Origin", origin)) == 403);
    CHECK(StatusOf(gate, "OPTIONS", with("Origin", origin)) == 403);
  }
  for (const char* site : {"cross-site", "same-site"})
    CHECK(StatusOf(gate, "GET", with("Sec-Fetch-Site", site)) == 403);
  CHECK(StatusOf(gate, "GET", with("Sec-Fetch-Site", "none")) == 0);
  for (const char* type :
       {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
        "text/plain; application/json", "application/jsonx"}) {
    INFO(type);
    CHECK(StatusOf(gate, "POST", {{"Host", "localhost"}, {"Content-Type", type}}) == 415);
  }
  CHECK(StatusOf(gate, "POST", {{"Host", "localhost"}}) == 415);
  CHECK(StatusOf(gate, "POST",
                 {{"Host", "localhost"}, {"Content-Type", "Application/JSON; charset=utf-8"}}) == 0);
  CHECK(StatusOf(gate, "POST", with("Content-Encoding", "gzip")) == 415);
}

TEST_CASE("the length of a body is said once and within the limit", "[serve]") {
  HttpServerOptions options;
  options.body_bytes = 1000;
  const RequestGate gate(options);
  const auto status = [&](const Headers& lengths) {
    Headers headers = {{"Host", "localhost"}, {"Content-Type", "application/json"}};
    headers.insert(lengths.begin(), lengths.end());
    return StatusOf(gate, "POST", headers);
  };
  CHECK(status({{"Content-Length", "1000"}}) == 0);
  CHECK(status({{"Content-Length", "1001"}}) == 413);
  CHECK(status({{"Content-Length", "99999999999999999999999999"}}) == 413);
  CHECK(status({{"Content-Length", "-1"}}) == 400);
  CHECK(status({{"Content-Length", "5"}, {"Content-Length", "6"}}) == 400);
  CHECK(status({{"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}}) == 400);
  CHECK(status({{"Transfer-Encoding", "Chunked"}}) == 0);
  CHECK(status({{"Transfer-Encoding", "gzip, chunked"}}) == 400);
}

TEST_CASE("with --api-keys only a known key passes", "[serve]") {
  const KeyFile file("# ours\nkey-number-one-0123456789\r\n\n  key-number-two-0123456789\n");
  HttpServerOptions options;
  options.api_keys = file.path();
  const RequestGate gate(options);
  CHECK(gate.keys().warnings().empty());
  const auto status = [&](const std::string& key) {
    return StatusOf(gate, "GET", {{"Host", "localhost"}, {"Authorization", key}});
  };
  CHECK(status("Bearer key-number-one-0123456789") == 0);
  CHECK(status("bearer key-number-two-0123456789") == 0);
  for (const char* key :
       {"", "Bearer ", "Bearer", "key-number-one-0123456789", "Basic key-number-one-0123456789",
        "Bearer key-number-one-012345678", "Bearer key-number-one-01234567890", "Bearer # ours",
        "Bearer key-number-one-0123456789key-number-one-0123456789", "Bearer key-number-three-0123456789"}) {
    INFO(key);
    CHECK(status(key) == 401);
  }
  CHECK(StatusOf(gate, "GET", {{"Host", "localhost"}}) == 401);
  CHECK(StatusOf(gate, "GET", {{"Host", "localhost"}}, "/health") == 0);
  CHECK(StatusOf(gate, "GET", {{"Host", "localhost"}}, "/metrics") == 401);
  CHECK(StatusOf(gate, "POST", {{"Host", "localhost"}}, "/health") == 401);
}

TEST_CASE("a file of keys that is unusable is an error, an unsafe one a warning", "[serve]") {
  HttpServerOptions options;
  const auto make = [&] { const RequestGate gate(options); };
  options.api_keys = "/no/such/file";
  CHECK(Message(make).find("--api-keys /no/such/file: No such file or directory") == 0);
  options.api_keys = fs::temp_directory_path();
  CHECK(Message(make).find("is not a regular file") != std::string::npos);
  for (const char* text : {"", "\n \n# only a comment\n"}) {
    const KeyFile file(text);
    options.api_keys = file.path();
    CHECK(Message(make).find("has no key | write a key a line") != std::string::npos);
  }
  {
    const KeyFile file("good-key-0123456789\ntwo words here 0123456789\n");
    options.api_keys = file.path();
    CHECK(Message(make).find("line 2 has a space") != std::string::npos);
  }
  const KeyFile file("short\n", 0644);
  const ApiKeys keys(file.path());
  REQUIRE(keys.warnings().size() == 2);
  CHECK(keys.warnings()[0].find("line 1 is shorter than 16") != std::string::npos);
  CHECK(keys.warnings()[1].find("other users can reach the keys; chmod 600") != std::string::npos);
}

TEST_CASE("an address beyond this machine needs keys, or a word that it does not", "[serve]") {
  const KeyFile file("key-number-one-0123456789\n");
  for (const char* host : {"0.0.0.0", "::", "192.168.1.5", "gpu1"}) {
    INFO(host);
    HttpServerOptions options;
    options.host = host;
    CHECK(Message([&] {
            const RequestGate gate(options);
          }).find("give --api-keys FILE; or --no-authentication") != std::string::npos);
    options.no_authentication = true;
    CHECK(Message([&] { const RequestGate gate(options); }).empty());
    options.no_authentication = false, options.api_keys = file.path();
    CHECK(Message([&] { const RequestGate gate(options); }).empty());
  }
  for (const char* host : {"127.0.0.1", "::1", "localhost", "127.0.0.53"}) {
    HttpServerOptions options;
    options.host = host;
    CHECK(Message([&] { const RequestGate gate(options); }).empty());
  }
}

}  // namespace
}  // namespace kevin::local
