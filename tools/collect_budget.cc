#include "tools/collect_budget.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "env/error.h"

namespace kevin {
namespace {

void ReadPrice(const std::string& text, Budget* budget) {
  const size_t slash = text.find('/');
  char* end = nullptr;
  budget->dollars_per_million_prompt = std::strtod(text.c_str(), &end);
  const bool first = slash != std::string::npos && end == text.c_str() + slash;
  if (first) budget->dollars_per_million_completion = std::strtod(text.c_str() + slash + 1, &end);
  if (first && *end == '\0') return;
  throw Error(ExitCode::kBadRequest, fmt::format("--price {}: not PROMPT/COMPLETION", text),
              "for example --price 2.5/10: dollars per million tokens");
}

}  // namespace

void AddCollectBudgetOptions(CLI::App* command, CollectBudget* budget) {
  Budget& limits = budget->limits;
  CLI::Option* hours = command->add_option("--hours", limits.hours, "Begin no turn after this time")
                           ->check(CLI::PositiveNumber);
  command->add_option("--budget-seconds", budget->seconds, "The same in seconds")
      ->check(CLI::PositiveNumber)
      ->excludes(hours);
  command->add_option("--tokens,--budget-tokens", limits.tokens, "The run may use so many tokens")
      ->check(TokenBudgetError);
  command
      ->add_option("--dollars,--budget-usd", limits.dollars,
                   "The run may cost so much; needs --prices or --price")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--price", budget->price,
                   "Dollars per million tokens, PROMPT/COMPLETION: 2.5/10; in place of --prices")
      ->excludes(command->get_option("--prices"));
  command->add_option("--gpu-seconds", limits.device_s, "The run may hold devices for so long")
      ->check(CLI::PositiveNumber);
}

Budget BudgetFrom(const CollectBudget& budget, const PolicyOptions& model) {
  Budget limits = budget.limits;
  if (budget.seconds) limits.hours = *budget.seconds / 3600;
  if (!budget.price.empty()) ReadPrice(budget.price, &limits);
  limits.costs_are_known = !model.prices.empty();
  if (limits.dollars && budget.price.empty() && !limits.costs_are_known) {
    throw Error(ExitCode::kBadRequest, "--dollars: what tokens cost is not known",
                "say it with --prices FILE or --price 2.5/10");
  }
  return limits;
}

}  // namespace kevin
