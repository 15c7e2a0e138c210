#pragma once
// JSON from servers, which may be anything: fields that are missing, null or of another type read as nothing.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace kevin::remote {

using Json = nlohmann::ordered_json;  // keeps the order of fields: equal requests are equal bytes

// nullopt for what is no JSON. A server that cuts a character in two between two strings sends bytes that are
// no UTF-8; each such byte comes back from RestoreBytes as it was, so that the halves join again.
std::optional<Json> ParseJson(std::string_view text);
std::string RestoreBytes(const std::string& text);

// Bytes that are no UTF-8 become U+FFFD.
std::string ValidUtf8(const std::string& text);

// The field, or null where `json` is no object or lacks it.
const Json& At(const Json& json, const char* name);
std::string TextAt(const Json& json, const char* name);
std::optional<int64_t> IntegerAt(const Json& json, const char* name);
std::optional<double> NumberAt(const Json& json, const char* name);

}  // namespace kevin::remote
