#pragma once
// The keys that clients of the server may present, from a file: `--api-keys`.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kevin::local {

// One key a line, of printable ASCII without spaces; empty lines and lines that begin with # are skipped. The
// file is read once. Immutable afterwards; any thread.
class ApiKeys {
 public:
  ApiKeys() = default;  // no authentication
  // Throws Error(kBadRequest) for a file that cannot be read, has no key or a key with another character.
  explicit ApiKeys(const std::filesystem::path& file);

  bool empty() const { return keys_.empty(); }
  // `authorization`: the value of the header, "Bearer KEY". Takes the same time for every key of the same
  // length, accepted or not.
  bool Accept(std::string_view authorization) const;
  // What is unsafe about the file, one line each: others may read it, a key is short.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> keys_, warnings_;
};

}  // namespace kevin::local
