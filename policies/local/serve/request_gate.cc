#include "policies/local/serve/request_gate.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "env/error.h"
#include "env/printable.h"

namespace kevin::local {
namespace {

constexpr const char* kHostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:";

std::string Lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// The host of "HOST", "HOST:PORT", "[V6]:PORT", in lower case; nullopt where it is none of these.
std::optional<std::string> HostOf(const std::string& value) {
  size_t end = 0;
  std::string host;
  if (value.starts_with('[')) {
    end = value.find(']');
    if (end == std::string::npos) return std::nullopt;
    host = value.substr(1, end - 1), ++end;
  } else {
    end = std::min(value.find(':'), value.size());
    host = value.substr(0, end);
  }
  const std::string port = value.substr(end);
  const bool is_port = port.empty() || (port[0] == ':' && port.size() <= 6 &&
                                        port.find_first_not_of("0123456789", 1) == std::string::npos);
  if (!is_port || host.find_first_not_of(kHostCharacters) != std::string::npos) return std::nullopt;
  if (host.ends_with('.')) host.pop_back();  // the root of DNS
  if (host.empty()) return std::nullopt;
  return Lower(host);
}

std::optional<std::string> AddressOf(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  if (inet_pton(AF_INET, host.c_str(), bytes.data()) == 1)
    return std::string(bytes.begin(), bytes.begin() + 4);
  if (inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1) return std::string(bytes.begin(), bytes.end());
  return std::nullopt;
}

bool IsWildcard(const std::string& host) {
  const auto address = AddressOf(host);
  return address && address->find_first_not_of('\0') == std::string::npos;
}

std::string OwnName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? Lower(name.data()) : "";
}

std::string Shown(const std::string& value) {
  constexpr size_t kMostBytes = 100;
  return PrintableLine(value.substr(0, kMostBytes));
}

bool IsJson(const std::string& type) {
  std::string name = Lower(type.substr(0, type.find(';')));
  while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.pop_back();
  return name == "application/json";
}

// How long the body is must be said in one way, or a proxy before this server and the server disagree about
// where the next request begins.
std::optional<ApiError> LengthRefusal(const RequestHead& head, size_t most) {
  const std::vector<std::string> lengths = head.values("Content-Length"),
                                 codings = head.values("Transfer-Encoding");
  if (lengths.size() + codings.size() > 1) return ApiError(400, "the length of the body is given twice");
  if (!codings.empty() && Lower(codings[0]) != "chunked")
    return ApiError(400, "the Transfer-Encoding is not supported; send the body as it is");
  if (lengths.empty()) return std::nullopt;
  if (lengths[0].empty() || lengths[0].find_first_not_of("0123456789") != std::string::npos)
    return ApiError(400, "Content-Length is no number");
  if (lengths[0].size() > 18 || std::strtoull(lengths[0].c_str(), nullptr, 10) > most)
    return ApiError(413, fmt::format("the request is too large: its body may have {} bytes", most));
  return std::nullopt;
}

}  // namespace

bool IsLoopback(const std::string& host) {
  if (Lower(host) == "localhost") return true;
  const auto address = AddressOf(host);
  if (!address) return false;
  if (address->size() == 4) return (*address)[0] == 127;
  return *address == *AddressOf("::1") ||
         (address->starts_with(AddressOf("::ffff:127.0.0.0")->substr(0, 13)));
}

RequestGate::RequestGate(const HttpServerOptions& options) : options_(options) {
  for (const std::string& name : options.allowed_hosts) {
    const auto host = HostOf(name);
    if (!host || *host != Lower(name))
      throw Error(ExitCode::kBadRequest, fmt::format("--allow-host {}: is no host name", name),
                  "give the name alone, as clients write it: gpu1.example.org");
    names_.push_back(*host);
  }
  if (!options.api_keys.empty()) keys_ = ApiKeys(options.api_keys);
  if (!options.unix_socket.empty() || IsLoopback(options.host)) return;
  names_.push_back(OwnName());
  if (!keys_.empty() || options.no_authentication) return;
  throw Error(ExitCode::kBadRequest,
              fmt::format("--host {}: other machines could use the model without a key", options.host),
              "give --api-keys FILE; or --no-authentication, where the network itself is trusted");
}

bool RequestGate::IsAllowedHost(const std::string& host) const {
  if (IsLoopback(host) || host == Lower(options_.host)) return true;
  if (std::find(names_.begin(), names_.end(), host) != names_.end()) return !host.empty();
  const auto address = AddressOf(host);
  if (!address) {
    // The machine's short name, and its long one of any domain, which its own DNS server gave it.
    return std::any_of(
        names_.begin() + static_cast<ptrdiff_t>(options_.allowed_hosts.size()), names_.end(),
        [&](const std::string& name) { return !name.empty() && name.starts_with(host + "."); });
  }
  // An address is no name that somebody could point here.
  return address == AddressOf(options_.host) || IsWildcard(options_.host);
}

std::optional<ApiError> RequestGate::HostRefusal(const std::vector<std::string>& hosts) const {
  if (hosts.size() != 1) return ApiError(400, "a request has one Host header");
  const auto host = HostOf(hosts[0]);
  if (host && IsAllowedHost(*host)) return std::nullopt;
  return ApiError(
      403,
      fmt::format("Host {} is no name of this server; kevin serve-model --allow-host NAME adds one",
                  Shown(hosts[0])),
      "host_not_allowed");
}

std::optional<ApiError> RequestGate::Refusal(const RequestHead& head) const {
  const std::vector<std::string> hosts = head.values("Host");
  if (options_.unix_socket.empty()) {
    if (auto refusal = HostRefusal(hosts)) return refusal;
  }
  const std::string own = hosts.empty() ? "" : "http://" + Lower(hosts[0]);
  for (const std::string& origin : head.values("Origin")) {
    if (Lower(origin) != own)
      return ApiError(403, fmt::format("pages of {} may not use this server", Shown(origin)),
                      "origin_not_allowed");
  }
  for (const std::string& site : head.values("Sec-Fetch-Site")) {
    if (site != "same-origin" && site != "none")
      return ApiError(403, "pages of other sites may not use this server", "origin_not_allowed");
  }
  const bool needs_key = !keys_.empty() && !(head.method == "GET" && head.path == "/health");
  const std::vector<std::string> authorizations = head.values("Authorization");
  if (needs_key && (authorizations.size() != 1 || !keys_.Accept(authorizations[0]))) {
    return ApiError(401,
                    authorizations.empty() ? "no API key was given; send it as Authorization: Bearer KEY"
                                           : "the API key is not known here",
                    "invalid_api_key");
  }
  if (head.method != "POST") return std::nullopt;
  const std::vector<std::string> types = head.values("Content-Type");
  if (types.size() != 1 || !IsJson(types[0]))
    return ApiError(415, "the Content-Type of a POST must be application/json", "unsupported_media_type");
  for (const std::string& coding : head.values("Content-Encoding")) {
    if (Lower(coding) != "identity")
      return ApiError(415, "the body must not be compressed", "unsupported_media_type");
  }
  return LengthRefusal(head, std::min(options_.body_bytes, options_.total_body_bytes));
}

}  // namespace kevin::local
