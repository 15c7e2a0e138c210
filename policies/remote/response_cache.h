#pragma once
// Responses kept in a folder under the content of their request, so that the same collection started again
// asks for nothing twice. Only whole answers are kept.

#include <filesystem>
#include <optional>
#include <string>

#include "policies/remote/http_client.h"

namespace kevin::remote {

class ResponseCache {
 public:
  // Makes the folder, private to its owner. Throws Error(kBadRequest) when it cannot be written. An empty
  // path is a cache that holds nothing.
  explicit ResponseCache(std::filesystem::path folder);

  // `key`: all that the answer depends on. Two requests of equal text that are to get answers of their own
  // (other seeds, where the provider takes none) need different keys.
  std::optional<HttpResponse> Find(const std::string& key) const;
  void Keep(const std::string& key, const HttpResponse& response) const;  // throws Error(kBroken)

 private:
  std::filesystem::path PathOf(const std::string& key) const;
  std::filesystem::path folder_;
};

}  // namespace kevin::remote
