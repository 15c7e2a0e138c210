#pragma once
// Where a policy's requests go and with what key, from its spec and the environment.

#include <filesystem>
#include <string>

#include "policies/remote/wire.h"

namespace kevin::remote {

// `provider:MODEL` or `provider:MODEL@BASE`, with provider openai, openai-responses or anthropic. BASE is a
// base URL as the vendor's own SDK takes it (OpenAI's ends in /v1, Anthropic's does not), or unix:PATH for a
// server on a Unix socket, which is asked as if it were at http://localhost/v1 (Anthropic: http://localhost).
struct Endpoint {
  Format format = Format::kChat;
  std::string provider, model;
  std::string base_url;         // without a slash at the end
  std::string unix_socket;      // empty: TCP
  bool is_vendors_own = false;  // nothing but the vendor's own address
  std::string given_base;       // as a spec has it after '@'; empty: the vendor's own

  std::string Spec() const;  // the policy's name; leads here again whatever the environment says
};

bool IsRemoteSpec(const std::string& spec);

// `base_url` (--base-url) goes before the spec's own, and that before OPENAI_BASE_URL or ANTHROPIC_BASE_URL.
// Throws Error(kBadRequest), among others for a URL that carries a name and password or a query.
Endpoint ParseSpec(const std::string& spec, const std::string& base_url);

// The key, from the first of: `key_file` (must be nobody else's to read), the variable named `key_variable`,
// the provider's usual ones (OPENAI_API_KEY, ANTHROPIC_API_KEY). Empty when there is none and the server is
// not the vendor's own. Throws Error(kBadRequest) when a key is missing or a file is open to others. A key is
// kept in memory only.
std::string FindKey(const Endpoint& endpoint, const std::filesystem::path& key_file,
                    const std::string& key_variable);

// `text` with every occurrence of the key blotted out.
std::string WithoutKey(std::string text, const std::string& key);

}  // namespace kevin::remote
