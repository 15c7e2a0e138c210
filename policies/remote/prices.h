#pragma once
// What tokens cost, from a file in the schema of LiteLLM's model_prices_and_context_window.json: an object
// per model with input_cost_per_token, output_cost_per_token and so on, in US dollars.

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "policies/policy.h"

namespace kevin::remote {

struct Price {
  double input = 0, output = 0;  // per token
  std::optional<double> cached_input, cache_write, reasoning;
  // Prompts longer than this many tokens cost more.
  std::optional<int64_t> long_prompt;
  double long_input = 0, long_output = 0;
  std::optional<int64_t> max_input_tokens, max_output_tokens;
};

class PriceTable {
 public:
  PriceTable() = default;
  // Throws Error(kBadRequest) when the file is not there or not of the schema.
  static PriceTable Read(const std::filesystem::path& path);

  // Under the model's name or "provider/model"; a dated name ("gpt-5-2025-08-07") that the table lacks is
  // found without its date. Null: unknown.
  const Price* Find(const std::string& provider, const std::string& model) const;

 private:
  std::map<std::string, Price> prices_;
};

double Cost(const Price& price, const Usage& usage);  // in US dollars

}  // namespace kevin::remote
