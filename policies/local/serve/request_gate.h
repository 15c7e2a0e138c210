#pragma once
// Which requests the server answers at all, decided by their headers before a byte of a body is read.
//
// The server listens on the user's machine, and so do his browser's pages. Three rules keep them out:
//   Host     names the server by an address or a name that belongs to it. A page whose own name was pointed at
//            this machine (DNS rebinding) sends that name.
//   Origin   is absent, or the server itself. Browsers add it to what a page sends; no CORS header is ever
//            sent, and a preflight is refused. Sec-Fetch-Site must not say "cross-site" or "same-site".
//   Content-Type  of a POST is application/json, which a page cannot send to a foreign server without asking.
// Beyond these, an API key where the server has some. GET /health needs none.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "policies/local/serve/api_keys.h"
#include "policies/local/serve/model_options.h"
#include "policies/local/serve/parse_request.h"

namespace kevin::local {

struct RequestHead {
  std::string method, path;
  // The values of the header of this name, in order.
  std::function<std::vector<std::string>(const char* name)> values;
};

// "localhost", an address of 127.0.0.0/8, or "::1".
bool IsLoopback(const std::string& host);

// Immutable; any thread.
class RequestGate {
 public:
  // Reads the file of keys. Throws Error(kBadRequest) for an unusable one, for a name in `allowed_hosts` that
  // is none, and for an address beyond this machine without keys, unless options.no_authentication is set.
  explicit RequestGate(const HttpServerOptions& options);

  // Why the request is refused; nullopt: it may pass.
  std::optional<ApiError> Refusal(const RequestHead& head) const;
  const ApiKeys& keys() const { return keys_; }

 private:
  std::optional<ApiError> HostRefusal(const std::vector<std::string>& hosts) const;
  bool IsAllowedHost(const std::string& host) const;

  const HttpServerOptions options_;
  std::vector<std::string> names_;  // in lower case
  ApiKeys keys_;
};

}  // namespace kevin::local
