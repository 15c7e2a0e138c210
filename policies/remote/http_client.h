#pragma once
// An HTTP client for model servers, over TCP, TLS (HTTP/2 where the server offers it) or a Unix socket. Only
// http_client.cc uses libcurl; it loads the library at the first request and throws Error(kMachine) when that
// fails. Proxies are taken from the usual environment variables (https_proxy, no_proxy). Redirects are not
// followed, so that a key reaches no other server.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/policy.h"

namespace kevin::remote {

struct HttpRequest {
  std::string url;
  std::string unix_socket;           // path; empty: TCP
  std::vector<std::string> headers;  // "name: value"
  std::optional<std::string> body;   // POST; none: GET
};

struct HttpLimits {
  double connect_s = 15;
  double stall_s = 300;                     // without a complete event or comment; before the first byte too
  double total_s = 1800;                    // of one request
  size_t response_bytes = size_t{1} << 28;  // a longer response is an error
};

enum class Transport {
  kDone,         // the whole response arrived
  kEnough,       // the reader had enough
  kUnreachable,  // no connection: name, network, refused
  kUntrusted,    // the server's certificate could not be verified, or the trusted ones are missing
  kTimedOut,     // one of HttpLimits
  kBroken,       // the connection ended within the response
  kCancelled
};

struct HttpResponse {
  Transport transport = Transport::kDone;
  std::string error;                           // one line; empty when kDone or kEnough
  std::optional<int> status;                   // none: no status line arrived
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // raw, as far as received
  double seconds = 0;
};

enum class Reading { kNothingNew, kProgress, kEnough };
// Receives each piece of the body with the response so far. Send passes its exceptions on.
using OnBody = std::function<Reading(const HttpResponse& so_far, std::string_view piece)>;

// Keeps connections open between requests. Send may be called from many threads at once.
class HttpClient {
 public:
  // `ca_file`: trusted certificates in place of the system's; empty: the environment's CURL_CA_BUNDLE or
  // SSL_CERT_FILE, else the system's.
  HttpClient(HttpLimits limits, std::string ca_file);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Failures of network and server are results, not exceptions. `cancel` and `on_body` may be null.
  HttpResponse Send(const HttpRequest& request, const CancelToken* cancel, const OnBody& on_body);

 private:
  struct Pool;
  const HttpLimits limits_;
  const std::string ca_file_;
  const std::unique_ptr<Pool> pool_;
};

// Seconds from now until an HTTP date ("Sat, 21 Nov 2026 16:00:00 GMT"), at least 0; nullopt for text that is
// not a date.
std::optional<double> SecondsUntil(const std::string& http_date);

}  // namespace kevin::remote
