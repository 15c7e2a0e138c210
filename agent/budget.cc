#include "agent/budget.h"

#include <fmt/format.h>

namespace kevin {

double DollarsFor(const Budget& budget, const CollectionUsage& usage) {
  return 1e-6 * (budget.dollars_per_million_prompt * static_cast<double>(usage.prompt_tokens) +
                 budget.dollars_per_million_completion * static_cast<double>(usage.completion_tokens));
}

std::string Exceeded(const Budget& budget, const CollectionUsage& usage, double process_seconds) {
  if (budget.hours && process_seconds >= *budget.hours * 3600)
    return fmt::format("{:g} hours", *budget.hours);
  if (budget.tokens && usage.prompt_tokens + usage.completion_tokens >= *budget.tokens)
    return fmt::format("{} tokens", *budget.tokens);
  if (budget.dollars && DollarsFor(budget, usage) >= *budget.dollars)
    return fmt::format("{:g} dollars", *budget.dollars);
  if (budget.device_s && usage.device_s >= *budget.device_s)
    return fmt::format("{:g} seconds of the device", *budget.device_s);
  return "";
}

}  // namespace kevin
