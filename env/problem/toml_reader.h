#pragma once
// Reading the TOML of a problem file; internal to the problem loader. Every error is Error(kBadRequest) with
// "FILE:LINE: KEY: reason" and a next step.

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "env/problem/names.h"
#include "env/problem/problem.h"

namespace kevin {

// A view of one table; the toml::table must outlive it.
class TomlSection {
 public:
  // `name` is the dotted path of the table ("inputs[0]"); "" for the whole file.
  TomlSection(std::string file, const toml::table& table, std::string name = "")
      : file_(std::move(file)), name_(std::move(name)), table_(&table) {}

  const toml::table& table() const { return *table_; }
  bool Has(std::string_view key) const { return table_->contains(key); }
  std::string Key(std::string_view key) const;  // "inputs[0].shape"

  // Values; each throws for another type.
  void CheckKeys(const std::vector<std::string_view>& known) const;
  const toml::node& Require(std::string_view key) const;
  std::string String(std::string_view key) const;  // not blank
  std::vector<std::string> Strings(std::string_view key) const;
  double Number(std::string_view key, double otherwise) const;  // finite
  int64_t Integer(std::string_view key) const;
  bool Bool(std::string_view key, bool otherwise) const;
  TomlSection Table(std::string_view key) const;
  std::vector<TomlSection> Tables(std::string_view key) const;  // [[key]], at least one
  const toml::array& Array(std::string_view key) const;
  // The same table under another name in messages.
  TomlSection Named(std::string name) const { return {file_, *table_, std::move(name)}; }

  // `at` gives the line number; `key` is printed unchanged.
  [[noreturn]] void Fail(const toml::source_region& at, const std::string& key, const std::string& reason,
                         const std::string& next_step) const;
  // For a key that this table has.
  [[noreturn]] void Fail(std::string_view key, const std::string& reason, const std::string& next_step) const;
  // For the table itself.
  [[noreturn]] void FailHere(const std::string& reason, const std::string& next_step) const;
  [[noreturn]] void FailType(const toml::node& node, const std::string& key, std::string_view wanted) const;

 private:
  std::string file_;
  std::string name_;
  const toml::table* table_;
};

// A problem out of a whole file: all but its text, hash and path. The file is hostile: each value is checked, expressions at
// every size.
Problem ReadProblem(const TomlSection& top);

// Fills sizes and shape_sets from the table `sizes`: [sizes.NAME] has one shape; [[sizes.NAME]] stands once
// for each of several, with an optional weight. Messages name a shape "sizes.mine/2", counted from 1.
void ReadSizeSets(const TomlSection& sizes, Problem* problem);

// The table [model] of a problem whose inputs and sizes are read.
ModelFacts ReadModelFacts(const TomlSection& section, const Problem& problem);

// The values of a stored input: `text` is the base64 of a zlib stream of exactly `bytes` bytes. Nothing if it
// is not.
std::optional<std::string> UnpackValues(const std::string& text, size_t bytes);

}  // namespace kevin
