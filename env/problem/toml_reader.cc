#include "env/problem/toml_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include "env/error.h"

namespace kevin {

// --- A table of the file ---

namespace {

const char* TypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a float";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

}  // namespace

std::string TomlSection::Key(std::string_view key) const {
  return name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
}

void TomlSection::CheckKeys(const std::vector<std::string_view>& known) const {
  for (const auto& [key, value] : *table_) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    Fail(key.source(), Key(key.str()), "unknown key", fmt::format("known here: {}", fmt::join(known, ", ")));
  }
}

const toml::node& TomlSection::Require(std::string_view key) const {
  const toml::node* node = table_->get(key);
  if (node == nullptr) {
    const std::string where = name_.empty() ? "the top of the file" : name_;
    Fail(table_->source(), Key(key), "missing key", fmt::format("add it to {}", where));
  }
  return *node;
}

std::string TomlSection::String(std::string_view key) const {
  const toml::node& node = Require(key);
  if (!node.is_string()) FailType(node, Key(key), "a string");
  std::string text = **node.as_string();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) Fail(key, "must not be empty", "write a value");
  return text;
}

std::vector<std::string> TomlSection::Strings(std::string_view key) const {
  std::vector<std::string> strings;
  for (const toml::node& node : Array(key)) {
    if (!node.is_string()) FailType(node, Key(key), "an array of strings");
    strings.push_back(**node.as_string());
  }
  return strings;
}

double TomlSection::Number(std::string_view key, double otherwise) const {
  if (!Has(key)) return otherwise;
  const toml::node& node = Require(key);
  if (!node.is_number()) FailType(node, Key(key), "a number");
  const double value = *node.value<double>();
  if (!std::isfinite(value)) Fail(key, "must be finite", "write a finite number");
  return value;
}

int64_t TomlSection::Integer(std::string_view key) const {
  const toml::node& node = Require(key);
  if (!node.is_integer()) FailType(node, Key(key), "an integer");
  return **node.as_integer();
}

bool TomlSection::Bool(std::string_view key, bool otherwise) const {
  if (!Has(key)) return otherwise;
  const toml::node& node = Require(key);
  if (!node.is_boolean()) FailType(node, Key(key), "true or false");
  return **node.as_boolean();
}

TomlSection TomlSection::Table(std::string_view key) const {
  const toml::node& node = Require(key);
  if (!node.is_table()) FailType(node, Key(key), "a table");
  return {file_, *node.as_table(), Key(key)};
}

std::vector<TomlSection> TomlSection::Tables(std::string_view key) const {
  std::vector<TomlSection> sections;
  for (const toml::node& node : Array(key)) {
    const std::string name = fmt::format("{}[{}]", Key(key), sections.size());
    if (!node.is_table()) FailType(node, name, "a table");
    sections.emplace_back(file_, *node.as_table(), name);
  }
  if (sections.empty()) Fail(key, "must not be empty", fmt::format("add a [[{}]] table", Key(key)));
  return sections;
}

const toml::array& TomlSection::Array(std::string_view key) const {
  const toml::node& node = Require(key);
  if (!node.is_array()) FailType(node, Key(key), "an array");
  return *node.as_array();
}

void TomlSection::Fail(const toml::source_region& at, const std::string& key, const std::string& reason,
                       const std::string& next_step) const {
  throw Error(ExitCode::kBadRequest, fmt::format("{}:{}: {}: {}", file_, at.begin.line, key, reason),
              next_step);
}

void TomlSection::Fail(std::string_view key, const std::string& reason, const std::string& next_step) const {
  Fail(Require(key).source(), Key(key), reason, next_step);
}

void TomlSection::FailHere(const std::string& reason, const std::string& next_step) const {
  Fail(table_->source(), name_, reason, next_step);
}

void TomlSection::FailType(const toml::node& node, const std::string& key, std::string_view wanted) const {
  Fail(node.source(), key, fmt::format("must be {}, not {}", wanted, TypeName(node)),
       "the file named by `kevin problems level1/19` explains every key");
}

// --- Size sets ---

namespace {

constexpr std::string_view kWeight = "weight";

double ReadWeight(const TomlSection& shape) {
  const double weight = shape.Number(kWeight, 1);
  if (weight <= 0) {
    shape.Fail(kWeight, fmt::format("must be above 0, not {:g}", weight),
               "it is the weight of this shape among the others; remove a shape that must not count");
  }
  return weight;
}

// All keys except `other` are symbols.
Symbols ReadSymbols(const TomlSection& size, std::string_view other) {
  Symbols symbols;
  for (const auto& [symbol, value] : size.table()) {
    if (symbol.str() == other) continue;
    const std::string key = size.Key(symbol.str());
    if (const std::string reason = WhyNoName(symbol.str()); !reason.empty()) {
      size.Fail(symbol.source(), key, reason, "choose another name");
    }
    const int64_t number = size.Integer(symbol.str());
    if (number < 1)
      size.Fail(symbol.str(), fmt::format("must be positive, not {}", number), "sizes start at 1");
    symbols[std::string(symbol.str())] = number;
  }
  return symbols;
}

// `first`: the size that was read first; `size`: another one.
void CheckSameSymbols(const std::pair<const std::string, Symbols>& first, const TomlSection& size,
                      const Symbols& symbols) {
  const auto complain = [&](const std::string& reason) {
    size.FailHere(reason, "every size set and every shape must define the same symbols");
  };
  for (const auto& [symbol, value] : first.second) {
    if (symbols.contains(symbol)) continue;
    if (size.Has(symbol)) {
      size.Fail(symbol, fmt::format("is the weight of the shape here, and a symbol in sizes.{}", first.first),
                "rename the symbol");
    }
    complain(fmt::format("'{}' is missing (sizes.{} has it)", symbol, first.first));
  }
  for (const auto& [symbol, value] : symbols) {
    if (!first.second.contains(symbol)) complain(fmt::format("'{}' is not in sizes.{}", symbol, first.first));
  }
}

void AddSize(const TomlSection& size, const std::string& name, const Symbols& symbols, Problem* problem) {
  if (!problem->sizes.empty()) CheckSameSymbols(*problem->sizes.begin(), size, symbols);
  if (problem->sizes.emplace(name, symbols).second) return;
  size.FailHere("the name is used by a shape of a size set", "choose another name");
}

void ReadShapes(const TomlSection& sizes, const std::string& name, Problem* problem) {
  const std::vector<TomlSection> tables = sizes.Tables(name);
  if (tables.size() > kMaxShapes) {
    sizes.Fail(name, fmt::format("has {} shapes, more than {}", tables.size(), kMaxShapes),
               "a candidate is compiled, verified and timed at each; remove some");
  }
  std::vector<WeightedShape> shapes;
  for (const TomlSection& table : tables) {
    const std::string size = tables.size() == 1 ? name : fmt::format("{}/{}", name, shapes.size() + 1);
    const TomlSection shape = table.Named(sizes.Key(size));
    const double weight = ReadWeight(shape);
    const Symbols symbols = ReadSymbols(shape, kWeight);
    for (const WeightedShape& earlier : shapes) {
      if (problem->sizes.at(earlier.size) != symbols) continue;
      shape.FailHere(fmt::format("is the same shape as {}", earlier.size),
                     "remove it and add its weight to the other");
    }
    AddSize(shape, size, symbols, problem);
    shapes.push_back({size, weight});
  }
  if (shapes.size() > 1) problem->shape_sets[name] = std::move(shapes);
}

}  // namespace

void ReadSizeSets(const TomlSection& sizes, Problem* problem) {
  for (const auto& [key, node] : sizes.table()) {
    const std::string name(key.str());
    if (const std::string reason = WhyNoSize(name); !reason.empty())
      sizes.Fail(key.source(), sizes.Key("*"), reason, "choose another name, such as small");
    if (node.is_array()) {
      ReadShapes(sizes, name, problem);
    } else {
      const TomlSection size = sizes.Table(name);
      AddSize(size, name, ReadSymbols(size, ""), problem);
    }
  }
  if (problem->sizes.empty()) sizes.FailHere("must not be empty", "add a [sizes.small] table");
}

// --- Stored values ---

namespace {

constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::optional<std::string> FromBase64(const std::string& text) {
  std::string bytes;
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=' || c == '\n') continue;
    const char* digit = c == '\0' ? nullptr : std::strchr(kDigits, c);
    if (digit == nullptr) return std::nullopt;
    held = (held << 6) | static_cast<uint32_t>(digit - kDigits);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>((held >> bits) & 0xFF);
  }
  return bytes;
}

}  // namespace

std::optional<std::string> UnpackValues(const std::string& text, size_t bytes) {
  const std::optional<std::string> packed = FromBase64(text);
  if (!packed) return std::nullopt;
  std::string values(bytes, '\0');
  uLongf size = bytes;
  const int status =
      uncompress(reinterpret_cast<Bytef*>(values.data()), &size,
                 reinterpret_cast<const Bytef*>(packed->data()), static_cast<uLong>(packed->size()));
  if (status != Z_OK || size != bytes) return std::nullopt;
  return values;
}

}  // namespace kevin
