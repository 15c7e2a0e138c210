#pragma once
// One table of a TOML file, read with messages a person can act on: every getter throws Error(kBadRequest)
// with "FILE:LINE: KEY: reason" and a next step. Internal to the problem loader. Views a toml::table that
// must outlive it.

#include <toml++/toml.h>

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

class TomlSection {
 public:
  // `name` is the dotted path of the table ("inputs[0]"); "" for the whole file.
  TomlSection(std::string file, const toml::table& table, std::string name = "")
      : file_(std::move(file)), name_(std::move(name)), table_(&table) {}

  const toml::table& table() const { return *table_; }
  bool Has(std::string_view key) const { return table_->contains(key); }
  std::string Key(std::string_view key) const;  // "inputs[0].shape"

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

  // `at` is where the line number comes from; `key` as written in the message.
  [[noreturn]] void Fail(const toml::source_region& at, const std::string& key, const std::string& reason,
                         const std::string& next_step) const;
  // The same for a key of this table that is there.
  [[noreturn]] void Fail(std::string_view key, const std::string& reason, const std::string& next_step) const;
  // For the table itself.
  [[noreturn]] void FailHere(const std::string& reason, const std::string& next_step) const;
  [[noreturn]] void FailType(const toml::node& node, const std::string& key, std::string_view wanted) const;

 private:
  std::string file_;
  std::string name_;
  const toml::table* table_;
};

}  // namespace kevin
