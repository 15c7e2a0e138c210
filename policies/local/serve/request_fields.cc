#include "policies/local/serve/request_fields.h"

#include <fmt/format.h>

#include <limits>

namespace kevin::local {

void RefuseField(const char* name, const std::string& why) {
  throw ApiError(400, fmt::format("{}: {}", name, why), "", name);
}

RequestFields::RequestFields(const Json& body) : body_(body) {
  if (!body.is_object()) throw ApiError(400, "the body is no JSON object");
}

std::optional<double> RequestFields::Number(const char* name, double low, double high) const {
  const Json& value = At(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) RefuseField(name, "must be a number");
  const double number = value.get<double>();
  if (!(number >= low && number <= high))
    RefuseField(name, fmt::format("must be from {:g} to {:g}", low, high));
  return number;
}

std::optional<int64_t> RequestFields::Integer(const char* name, int64_t low, int64_t high) const {
  const Json& value = At(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer()) RefuseField(name, "must be an integer");
  const bool is_huge = value.is_number_unsigned() &&
                       value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const int64_t number = is_huge ? high : value.get<int64_t>();
  if (is_huge ? high != std::numeric_limits<int64_t>::max() : number < low || number > high)
    RefuseField(name, fmt::format("must be from {} to {}", low, high));
  return is_huge ? static_cast<int64_t>(value.get<uint64_t>()) : number;
}

bool RequestFields::Flag(const char* name, bool otherwise) const {
  const Json& value = At(name);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) RefuseField(name, "must be true or false");
  return value.get<bool>();
}

std::optional<std::string> RequestFields::Text(const char* name) const {
  const Json& value = At(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) RefuseField(name, "must be a text");
  return value.get<std::string>();
}

Json RequestFields::Object(const char* name) const {
  const Json& value = At(name);
  if (value.is_null()) return Json::object();
  if (!value.is_object()) RefuseField(name, "must be an object");
  return value;
}

std::vector<std::string> RequestFields::Texts(const char* name, size_t most) const {
  const Json& value = At(name);
  std::vector<std::string> texts;
  if (value.is_null()) return texts;
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      RefuseField(name, "must be a text or a list of texts, none of them empty");
    texts.push_back(text.get<std::string>());
  }
  if (texts.size() > most) RefuseField(name, fmt::format("has more than {} texts", most));
  return texts;
}

std::vector<int32_t> RequestFields::Integers(const char* name) const {
  const Json& value = At(name);
  std::vector<int32_t> integers;
  if (value.is_null()) return integers;
  if (!value.is_array()) RefuseField(name, "must be a list of integers");
  integers.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 ||
        item.get<int64_t>() > std::numeric_limits<int32_t>::max())
      RefuseField(name, "must be a list of token ids");
    integers.push_back(item.get<int32_t>());
  }
  return integers;
}

void RequestFields::Lacks(const char* name, const Json& harmless) const {
  const Json& value = At(name);
  if (value.is_null() || value == harmless) return;
  if ((value.is_array() || value.is_object()) && value.empty()) return;
  RefuseField(name, "this server does not have it");
}

}  // namespace kevin::local
