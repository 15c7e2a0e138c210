#include "agent/rollout/budget.h"

#include <fmt/format.h>

namespace kevin {
namespace {

std::string DollarText(double dollars) { return fmt::format("{:g} dollars", dollars); }
std::string TokenText(int64_t tokens) { return fmt::format("{} tokens", tokens); }
int64_t Tokens(const CollectionUsage& usage) { return usage.prompt_tokens + usage.completion_tokens; }

}  // namespace

double DollarsFor(const Budget& budget, const CollectionUsage& usage) {
  if (budget.costs_are_known) return usage.dollars;
  return 1e-6 * (budget.dollars_per_million_prompt * static_cast<double>(usage.prompt_tokens) +
                 budget.dollars_per_million_completion * static_cast<double>(usage.completion_tokens));
}

std::string Exceeded(const Budget& budget, const CollectionUsage& usage, double process_seconds) {
  if (budget.hours && process_seconds >= *budget.hours * 3600)
    return fmt::format("{:g} hours", *budget.hours);
  if (budget.tokens && Tokens(usage) >= *budget.tokens) return TokenText(*budget.tokens);
  if (budget.dollars && DollarsFor(budget, usage) >= *budget.dollars) return DollarText(*budget.dollars);
  if (budget.device_s && usage.device_s >= *budget.device_s)
    return fmt::format("{:g} seconds of the device", *budget.device_s);
  return "";
}

std::string Nearest(const Budget& budget, const CollectionUsage& usage) {
  if (!budget.dollars) return budget.tokens ? TokenText(*budget.tokens) : "";
  const double of_tokens =
      budget.tokens ? static_cast<double>(Tokens(usage)) / static_cast<double>(*budget.tokens) : 0;
  return of_tokens > DollarsFor(budget, usage) / *budget.dollars ? TokenText(*budget.tokens)
                                                                 : DollarText(*budget.dollars);
}

}  // namespace kevin
