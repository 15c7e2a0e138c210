#pragma once
// Typed access to the fields of a configuration file, with errors that name file, field and value.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kevin::local {

class ConfigFields {
 public:
  // `json` must be an object (throws Error(kBadRequest)); `name` is the file's in messages.
  ConfigFields(nlohmann::json json, std::string name);
  static ConfigFields Parse(const std::string& text, const std::string& name);

  bool Has(const std::string& field) const;  // and it is not null
  int Int(const std::string& field) const;   // positive, at most 2^31 - 1
  int Int(const std::string& field, int otherwise) const;
  double Number(const std::string& field) const;
  double Number(const std::string& field, double otherwise) const;
  bool Bool(const std::string& field, bool otherwise) const;
  std::string Text(const std::string& field, const std::string& otherwise) const;
  std::vector<int32_t> Ints(const std::string& field) const;  // a list, or one number; absent: empty
  std::vector<std::string> Texts(const std::string& field) const;
  ConfigFields Object(const std::string& field) const;

  [[noreturn]] void Refuse(const std::string& field, const std::string& why,
                           const std::string& next_step = "") const;

 private:
  const nlohmann::json* Find(const std::string& field) const;
  nlohmann::json json_;
  std::string name_;
};

}  // namespace kevin::local
