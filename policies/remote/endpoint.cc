#include "policies/remote/endpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "env/error.h"

namespace kevin::remote {
namespace {

struct Vendor {
  const char* provider;
  Format format;
  const char* base_url;
  const char* base_variable;
  const char* key_variable;
};

constexpr std::array<Vendor, 3> kVendors = {
    {{"openai", Format::kChat, "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"},
     {"openai-responses", Format::kResponses, "https://api.openai.com/v1", "OPENAI_BASE_URL",
      "OPENAI_API_KEY"},
     {"anthropic", Format::kMessages, "https://api.anthropic.com", "ANTHROPIC_BASE_URL",
      "ANTHROPIC_API_KEY"}}};

const Vendor* FindVendor(const std::string& spec) {
  for (const Vendor& vendor : kVendors) {
    if (spec.starts_with(std::string(vendor.provider) + ":")) return &vendor;
  }
  return nullptr;
}

std::string Variable(const std::string& name) {
  const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

[[noreturn]] void ThrowBadUrl(const std::string& url, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("base URL {}: {}", url, why),
              "write for example --base-url http://127.0.0.1:8000/v1 or --base-url unix:/run/model.sock");
}

void SetBase(std::string base, const Vendor& vendor, Endpoint* endpoint) {
  while (base.ends_with('/')) base.pop_back();
  constexpr std::string_view kUnix = "unix:";
  if (base.starts_with(kUnix)) {
    endpoint->unix_socket = base.substr(kUnix.size());
    if (endpoint->unix_socket.empty()) ThrowBadUrl(base, "it names no socket");
    endpoint->base_url = vendor.format == Format::kMessages ? "http://localhost" : "http://localhost/v1";
    endpoint->given_base = base;
    return;
  }
  if (!base.starts_with("http://") && !base.starts_with("https://"))
    ThrowBadUrl(base, "it begins with neither http://, https:// nor unix:");
  const size_t host = base.find("//") + 2;
  if (host >= base.size() || base[host] == '/') ThrowBadUrl(base, "it names no host");
  for (const char c : base) {
    if (static_cast<unsigned char>(c) <= ' ') ThrowBadUrl(base, "it contains a space or a line end");
  }
  if (base.substr(host, base.find('/', host) - host).find('@') != std::string::npos)
    ThrowBadUrl("with a name or password", "it would be stored and shown");
  if (base.find_first_of("?#") != std::string::npos)
    ThrowBadUrl(base.substr(0, base.find('?')), "it has a query");
  endpoint->base_url = base;
  endpoint->is_vendors_own = base == vendor.base_url;
  if (!endpoint->is_vendors_own) endpoint->given_base = base;
}

// The position of the '@' before a URL; model names may contain an '@' too.
size_t FindBase(const std::string& spec) {
  for (const char* start : {"@http://", "@https://", "@unix:"}) {
    if (const size_t at = spec.find(start); at != std::string::npos) return at;
  }
  return std::string::npos;
}

[[noreturn]] void ThrowKeyFile(const std::filesystem::path& path, const std::string& why,
                               const std::string& next_step) {
  throw Error(ExitCode::kBadRequest, fmt::format("key file {}: {}", path.string(), why), next_step);
}

std::string ReadKeyFile(const std::filesystem::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) ThrowKeyFile(path, std::strerror(errno), "pass a file with the key with --key-file");
  struct stat info {};
  std::array<char, 4096> buffer{};
  const bool known = fstat(file, &info) == 0;
  const ssize_t length = read(file, buffer.data(), buffer.size());
  close(file);
  if (!known || !S_ISREG(info.st_mode))
    ThrowKeyFile(path, "is not a regular file", "pass a file with the key with --key-file");
  if ((info.st_mode & 077) != 0) ThrowKeyFile(path, "others may read it", "chmod 600 " + path.string());
  std::string key(buffer.data(), length > 0 ? static_cast<size_t>(length) : 0);
  while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back()))) key.pop_back();
  if (key.empty()) ThrowKeyFile(path, "is empty", "write the key into it");
  return key;
}

void CheckKey(const std::string& key) {
  for (const char c : key) {
    if (static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 127) continue;
    throw Error(ExitCode::kBadRequest, "the API key contains a space, a line end or a non-ASCII character",
                "store the key alone, on one line");
  }
}

}  // namespace

std::string Endpoint::Spec() const {
  return provider + ":" + model + (given_base.empty() ? "" : "@" + given_base);
}

bool IsRemoteSpec(const std::string& spec) { return FindVendor(spec) != nullptr; }

Endpoint ParseSpec(const std::string& spec, const std::string& base_url) {
  const Vendor* const vendor = FindVendor(spec);
  Endpoint endpoint;
  if (vendor != nullptr) {
    endpoint.provider = vendor->provider;
    endpoint.format = vendor->format;
    endpoint.model = spec.substr(endpoint.provider.size() + 1);
  }
  const size_t at = FindBase(endpoint.model);
  const std::string own = at == std::string::npos ? "" : endpoint.model.substr(at + 1);
  endpoint.model.resize(std::min(at, endpoint.model.size()));
  if (vendor == nullptr || endpoint.model.empty()) {
    throw Error(ExitCode::kBadRequest, fmt::format("policy \"{}\": no model named", spec),
                "write openai:MODEL, openai-responses:MODEL or anthropic:MODEL");
  }
  std::string base = !base_url.empty() ? base_url : own;
  if (base.empty()) base = Variable(vendor->base_variable);
  SetBase(base.empty() ? vendor->base_url : base, *vendor, &endpoint);
  return endpoint;
}

std::string FindKey(const Endpoint& endpoint, const std::filesystem::path& key_file,
                    const std::string& key_variable) {
  const Vendor& vendor = *FindVendor(endpoint.provider + ":");
  std::string key = key_file.empty() ? "" : ReadKeyFile(key_file);
  if (key.empty() && !key_variable.empty()) {
    key = Variable(key_variable);
    if (key.empty()) {
      throw Error(ExitCode::kBadRequest, fmt::format("the variable {} is not set", key_variable),
                  fmt::format("export {}=... or omit --key-variable", key_variable));
    }
  }
  if (key.empty()) key = Variable(vendor.key_variable);
  if (key.empty() && endpoint.is_vendors_own) {
    throw Error(ExitCode::kBadRequest, fmt::format("no API key for {}", endpoint.base_url),
                fmt::format("export {}=..., or pass a private file with --key-file", vendor.key_variable));
  }
  CheckKey(key);
  return key;
}

std::string WithoutKey(std::string text, const std::string& key) {
  if (key.size() < 4) return text;  // too short to be a secret, and present in any text
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at))
    text.replace(at, key.size(), "[key]");
  return text;
}

}  // namespace kevin::remote
