#include "env/verdict/decoy_result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kevin {

std::string WorstErrorText(double max_error, double error_bound) {
  return fmt::format("worst error {:.2g} of {:.2g} allowed", max_error, error_bound);
}

nlohmann::json DecoysToJson(const std::vector<DecoyResult>& decoys) {
  nlohmann::json json = nlohmann::json::array();
  for (const DecoyResult& decoy : decoys) {
    json.push_back({{"name", decoy.name},
                    {"must_pass", decoy.must_pass},
                    {"passed", decoy.passed},
                    {"reason", decoy.reason},
                    {"told_apart", decoy.told_apart}});
  }
  return json;
}

std::vector<DecoyResult> DecoysFromJson(const nlohmann::json& json) {
  std::vector<DecoyResult> decoys;
  for (const nlohmann::json& one : json)
    decoys.push_back(
        {one.at("name"), one.at("must_pass"), one.at("passed"), one.at("reason"), one.at("told_apart")});
  return decoys;
}

}  // namespace kevin
