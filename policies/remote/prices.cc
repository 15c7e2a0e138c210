#include "policies/remote/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>

#include "policies/remote/json.h"

namespace kevin::remote {
namespace {

[[noreturn]] void ThrowBadFile(const std::filesystem::path& path, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("{}: {}", path.string(), why),
              "give a file in the schema of LiteLLM's model_prices_and_context_window.json with --prices");
}

// "input_cost_per_token_above_200k_tokens"
void ReadLongPrompt(const Json& entry, Price* price) {
  static const std::regex kPattern("(input|output)_cost_per_token_above_([0-9]{1,6})k_tokens");
  price->long_input = price->input;
  price->long_output = price->output;
  for (const auto& [name, value] : entry.items()) {
    std::smatch match;
    if (!value.is_number() || !std::regex_match(name, match, kPattern)) continue;
    price->long_prompt = std::stoll(match[2].str()) * 1000;
    (match[1] == "input" ? price->long_input : price->long_output) = value.get<double>();
  }
}

std::optional<Price> ReadPrice(const Json& entry) {
  const auto input = NumberAt(entry, "input_cost_per_token"),
             output = NumberAt(entry, "output_cost_per_token");
  if (!input || !output) return std::nullopt;
  Price price;
  price.input = *input;
  price.output = *output;
  price.cached_input = NumberAt(entry, "cache_read_input_token_cost");
  price.cache_write = NumberAt(entry, "cache_creation_input_token_cost");
  price.reasoning = NumberAt(entry, "output_cost_per_reasoning_token");
  price.max_input_tokens = IntegerAt(entry, "max_input_tokens");
  price.max_output_tokens = IntegerAt(entry, "max_output_tokens");
  ReadLongPrompt(entry, &price);
  return price;
}

std::string WithoutDate(const std::string& model) {
  static const std::regex kDate("-(20[0-9]{2}-?[0-9]{2}-?[0-9]{2})$");
  return std::regex_replace(model, kDate, "");
}

}  // namespace

PriceTable PriceTable::Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) ThrowBadFile(path, "cannot be read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto json = ParseJson(text);
  if (!json || !json->is_object()) ThrowBadFile(path, "is no JSON object");
  PriceTable table;
  for (const auto& [model, entry] : json->items()) {
    if (const auto price = ReadPrice(entry)) table.prices_[model] = *price;
  }
  if (table.prices_.empty())
    ThrowBadFile(path, "has no model with input_cost_per_token and output_cost_per_token");
  return table;
}

const Price* PriceTable::Find(const std::string& provider, const std::string& model) const {
  const std::string vendor = provider.substr(0, provider.find('-'));
  for (const std::string& name : {model, WithoutDate(model)}) {
    for (const std::string& key : {name, vendor + "/" + name}) {
      if (const auto found = prices_.find(key); found != prices_.end()) return &found->second;
    }
  }
  return nullptr;
}

double Cost(const Price& price, const Usage& usage) {
  const bool is_long = price.long_prompt && usage.prompt_tokens > *price.long_prompt;
  const double input = is_long ? price.long_input : price.input;
  const double output = is_long ? price.long_output : price.output;
  const int64_t fresh =
      std::max<int64_t>(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens);
  const int64_t spoken = std::max<int64_t>(0, usage.completion_tokens - usage.reasoning_tokens);
  return static_cast<double>(fresh) * input +
         static_cast<double>(usage.cached_tokens) * price.cached_input.value_or(input) +
         static_cast<double>(usage.cache_write_tokens) * price.cache_write.value_or(input) +
         static_cast<double>(spoken) * output +
         static_cast<double>(usage.reasoning_tokens) * price.reasoning.value_or(output);
}

}  // namespace kevin::remote
