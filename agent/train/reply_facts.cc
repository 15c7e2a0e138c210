#include "agent/train/reply_facts.h"

#include <string>
#include <unordered_set>

namespace kevin {
namespace {
constexpr size_t kRun = 8;
}

bool LacksOpening(const std::string& reasoning, const std::string& opening) {
  const size_t start = reasoning.find_first_not_of(" \t\r\n");
  return start != std::string::npos && reasoning.compare(start, opening.size(), opening) != 0;
}

double Repetition(std::span<const int32_t> tokens) {
  if (tokens.size() <= kRun) return 0;
  const size_t runs = tokens.size() - kRun + 1;
  std::unordered_set<std::u32string> seen;
  const std::u32string text(tokens.begin(), tokens.end());
  for (size_t i = 0; i < runs; ++i) seen.insert(text.substr(i, kRun));
  return 1 - static_cast<double>(seen.size()) / static_cast<double>(runs);
}

}  // namespace kevin
