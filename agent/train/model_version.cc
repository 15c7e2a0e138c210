#include "agent/train/model_version.h"

#include <charconv>

namespace kevin {

std::string VersionedModel(const std::string& name, int64_t steps) {
  return name + "@" + std::to_string(steps);
}

std::optional<int64_t> VersionOfModel(const std::string& stored) {
  const size_t at = stored.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  int64_t steps = 0;
  const char* const end = stored.data() + stored.size();
  const auto [next, error] = std::from_chars(stored.data() + at + 1, end, steps);
  if (error != std::errc() || next != end || steps < 0) return std::nullopt;
  return steps;
}

}  // namespace kevin
