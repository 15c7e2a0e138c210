#pragma once
// The server and the key of a remote policy, from its spec ("openai:gpt-5-mini"), options and environment.

#include <filesystem>
#include <string>

#include "policies/remote/wire.h"

namespace kevin::remote {

// `provider:MODEL` or `provider:MODEL@BASE`, with provider openai, openai-responses or anthropic. BASE is a
// base URL as the vendor's own SDK takes it (OpenAI's ends in /v1, Anthropic's does not), or unix:PATH for a
// server on a Unix socket, addressed as http://localhost/v1 (Anthropic: http://localhost).
struct Endpoint {
  Format format = Format::kChat;
  std::string provider, model;
  std::string base_url;         // without a slash at the end
  std::string unix_socket;      // empty: TCP
  bool is_vendors_own = false;  // the vendor's own address
  std::string given_base;       // the part of the spec after '@'; empty: the vendor's own

  std::string Spec() const;  // the policy's name; names the same endpoint in any environment
};

bool IsRemoteSpec(const std::string& spec);

// The base URL is the first of: `base_url` (--base-url), the spec's own, OPENAI_BASE_URL or
// ANTHROPIC_BASE_URL, the vendor's. Throws Error(kBadRequest), also for a URL with a user name, a password or
// a query.
Endpoint ParseSpec(const std::string& spec, const std::string& base_url);

// The key, from the first of: `key_file` (readable by its owner only), the variable named `key_variable`, the
// provider's usual one (OPENAI_API_KEY, ANTHROPIC_API_KEY). Empty when there is none and the server is not
// the vendor's own. Throws Error(kBadRequest) when a key is missing or others may read the file. A key is
// kept in memory only: never stored, printed or put on a command line.
std::string FindKey(const Endpoint& endpoint, const std::filesystem::path& key_file,
                    const std::string& key_variable);

// `text` with every occurrence of the key replaced by "[key]".
std::string WithoutKey(std::string text, const std::string& key);

}  // namespace kevin::remote
