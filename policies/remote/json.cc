#include "policies/remote/json.h"

namespace kevin::remote {
namespace {

// The length of the UTF-8 sequence at `at`; 0 when it is invalid, as surrogates and overlong forms are.
size_t SequenceLength(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at), second = byte(at + 1);
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80; };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(at + 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F);
    return !bad && continues(at + 1) && continues(at + 2) ? 3 : 0;
  }
  if (first < 0xF0 || first > 0xF4) return 0;
  const bool bad = (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return !bad && continues(at + 1) && continues(at + 2) && continues(at + 3) ? 4 : 0;
}

template <class Replace>
std::string ReplaceBadBytes(std::string_view text, const Replace& replace) {
  std::string good;
  good.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text, at);
    if (length == 0) {
      good += replace(static_cast<unsigned char>(text[at++]));
    } else {
      good += text.substr(at, length);
      at += length;
    }
  }
  return good;
}

// Byte 0xNN as U+10FFNN, of the last private-use plane, which servers do not send: F4 8F BE or BF, then 80 to
// BF.
std::string Escaped(unsigned char byte) {
  return {'\xF4', '\x8F', static_cast<char>(0xBC | (byte >> 6)), static_cast<char>(0x80 | (byte & 0x3F))};
}

const Json& Nothing() {
  static const Json nothing;
  return nothing;
}

}  // namespace

std::optional<Json> ParseJson(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_discarded()) return json;
  const std::string escaped = ReplaceBadBytes(text, Escaped);
  if (escaped == text) return std::nullopt;
  json = Json::parse(escaped, nullptr, false);
  return json.is_discarded() ? std::nullopt : std::optional(std::move(json));
}

std::string RestoreBytes(const std::string& text) {
  std::string bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool escaped = at + 3 < text.size() && text[at] == '\xF4' && text[at + 1] == '\x8F' &&
                         (text[at + 2] == '\xBE' || text[at + 2] == '\xBF');
    if (!escaped) {
      bytes += text[at];
      continue;
    }
    bytes += static_cast<char>(((text[at + 2] & 3) << 6) | (text[at + 3] & 0x3F));
    at += 3;
  }
  return bytes;
}

std::string ValidUtf8(const std::string& text) {
  return ReplaceBadBytes(text, [](unsigned char) { return std::string("\xEF\xBF\xBD"); });
}

const Json& At(const Json& json, const char* name) {
  if (!json.is_object()) return Nothing();
  const auto found = json.find(name);
  return found == json.end() ? Nothing() : *found;
}

std::string TextAt(const Json& json, const char* name) {
  const Json& value = At(json, name);
  return value.is_string() ? RestoreBytes(value.get<std::string>()) : "";
}

std::optional<int64_t> IntegerAt(const Json& json, const char* name) {
  const Json& value = At(json, name);
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::optional<double> NumberAt(const Json& json, const char* name) {
  const Json& value = At(json, name);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

}  // namespace kevin::remote
