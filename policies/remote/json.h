#pragma once
// JSON from servers. Its content is not trusted: a field that is missing, null or of another type reads as
// absent. All functions are pure.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kevin::remote {

using Json = nlohmann::ordered_json;  // keeps the order of fields: equal requests are equal bytes

// nullopt for text that is not JSON. A server that splits a UTF-8 sequence between two strings sends invalid
// bytes; they are accepted, and RestoreBytes returns each such byte unchanged, so that the parts join again.
std::optional<Json> ParseJson(std::string_view text);
std::string RestoreBytes(const std::string& text);

// Invalid bytes become U+FFFD.
std::string ValidUtf8(const std::string& text);

// The field, or null where `json` is not an object or lacks it.
const Json& At(const Json& json, const char* name);
std::string TextAt(const Json& json, const char* name);  // with RestoreBytes; empty when absent
std::optional<int64_t> IntegerAt(const Json& json, const char* name);
std::optional<double> NumberAt(const Json& json, const char* name);

}  // namespace kevin::remote
