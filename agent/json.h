#pragma once
// JSON as Kevin prints and stores it: fields in the order of writing, unknown values as null. Pure.

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kevin {

using Json = nlohmann::ordered_json;

// null for what is unknown: an empty text, an absent value, an empty list, a number that is not finite.
inline Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
inline Json OrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
Json OrNull(const std::vector<T>& values) {
  return values.empty() ? Json(nullptr) : Json(values);
}

}  // namespace kevin
