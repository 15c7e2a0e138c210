#include "env/problem/toml_section.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "env/error.h"

namespace kevin {
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

}  // namespace kevin
