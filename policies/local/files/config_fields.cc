#include "policies/local/files/config_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "env/error.h"

namespace kevin::local {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

std::string Shown(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

bool IsToken(const nlohmann::json& value) {
  return value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= kLargest;
}

}  // namespace

ConfigFields::ConfigFields(nlohmann::json json, std::string name)
    : json_(std::move(json)), name_(std::move(name)) {
  if (!json_.is_object()) throw Error(ExitCode::kBadRequest, name_ + " is no JSON object");
}

ConfigFields ConfigFields::Parse(const std::string& text, const std::string& name) {
  try {
    return {nlohmann::json::parse(text), name};
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(ExitCode::kBadRequest, fmt::format("{} is not JSON: wrong at byte {}", name, error.byte));
  }
}

const nlohmann::json* ConfigFields::Find(const std::string& field) const {
  const auto found = json_.find(field);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::Has(const std::string& field) const { return Find(field) != nullptr; }

void ConfigFields::Refuse(const std::string& field, const std::string& why,
                          const std::string& next_step) const {
  const nlohmann::json* value = Find(field);
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: {} {}: {}", name_, field, value ? "is " + Shown(*value) : "is missing", why),
              next_step);
}

int ConfigFields::Int(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value || !IsToken(*value) || value->get<int64_t>() == 0) Refuse(field, "must be a positive integer");
  return value->get<int>();
}

int ConfigFields::Int(const std::string& field, int otherwise) const {
  return Has(field) ? Int(field) : otherwise;
}

double ConfigFields::Number(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value || !value->is_number() || !std::isfinite(value->get<double>()))
    Refuse(field, "must be a number");
  return value->get<double>();
}

double ConfigFields::Number(const std::string& field, double otherwise) const {
  return Has(field) ? Number(field) : otherwise;
}

bool ConfigFields::Bool(const std::string& field, bool otherwise) const {
  const nlohmann::json* value = Find(field);
  if (!value) return otherwise;
  if (!value->is_boolean()) Refuse(field, "must be true or false");
  return value->get<bool>();
}

std::string ConfigFields::Text(const std::string& field, const std::string& otherwise) const {
  const nlohmann::json* value = Find(field);
  if (!value) return otherwise;
  if (!value->is_string()) Refuse(field, "must be a text");
  return value->get<std::string>();
}

std::vector<int32_t> ConfigFields::Ints(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value) return {};
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  std::vector<int32_t> numbers;
  for (const nlohmann::json& element : list) {
    if (!IsToken(element)) Refuse(field, "must be an integer from 0 on, or a list of them");
    numbers.push_back(element.get<int32_t>());
  }
  return numbers;
}

std::vector<std::string> ConfigFields::Texts(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value) return {};
  std::vector<std::string> texts;
  for (const nlohmann::json& element : *value) {
    if (!value->is_array() || !element.is_string()) Refuse(field, "must be a list of texts");
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

ConfigFields ConfigFields::Object(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value || !value->is_object()) Refuse(field, "must be an object");
  return {*value, name_ + ", " + field};
}

}  // namespace kevin::local
