#pragma once
// HTTP for API clients, over TCP, TLS (HTTP/2 where the server has it) or a Unix socket. All that knows
// libcurl is here and in curl_api.h. Proxies come from the usual environment variables (https_proxy,
// no_proxy); redirects are not followed, so that a key goes nowhere else.

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
  double stall_s = 300;                     // without a whole event or comment; until the first byte too
  double total_s = 1800;                    // of one request
  size_t response_bytes = size_t{1} << 28;  // more than that is no answer
};

enum class Transport {
  kDone,         // the whole response arrived
  kEnough,       // the reader wanted no more
  kUnreachable,  // no connection: name, network, refused
  kUntrusted,    // the server's certificate could not be verified, or ours to verify with is missing
  kTimedOut,     // one of HttpLimits
  kBroken,       // the connection ended in the middle
  kCancelled
};

struct HttpResponse {
  Transport transport = Transport::kDone;
  std::string error;                           // one line; empty when kDone or kEnough
  std::optional<int> status;                   // none: no status line arrived
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // raw, as far as it arrived
  double seconds = 0;
};

enum class Reading { kNothingNew, kProgress, kEnough };
// A piece of the body as it arrives, with what is known of the response. What it throws goes through Send.
using OnBody = std::function<Reading(const HttpResponse& so_far, std::string_view piece)>;

// Keeps connections alive between requests. Send may be called from any number of threads at once.
class HttpClient {
 public:
  // `ca_file`: certificates to trust in place of the system's; empty: CURL_CA_BUNDLE or SSL_CERT_FILE of the
  // environment, then the system's.
  HttpClient(HttpLimits limits, std::string ca_file);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Never throws for what the network or the server do. `cancel` and `on_body` may be null.
  HttpResponse Send(const HttpRequest& request, const CancelToken* cancel, const OnBody& on_body);

 private:
  struct Pool;
  const HttpLimits limits_;
  const std::string ca_file_;
  const std::unique_ptr<Pool> pool_;
};

// From now until a date as HTTP writes it ("Sat, 21 Nov 2026 16:00:00 GMT"), never negative; nullopt for what
// is no date.
std::optional<double> SecondsUntil(const std::string& http_date);

}  // namespace kevin::remote
