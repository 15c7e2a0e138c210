#pragma once
// The fields of a request's JSON body, with an ApiError (400) that names the field for what is not as it must
// be. A field that is null counts as absent.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/local/serve/api_error.h"

namespace kevin::local {

class RequestFields {
 public:
  explicit RequestFields(const Json& body);  // outlives this

  std::optional<double> Number(const char* name, double low, double high) const;  // bounds included
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high) const;
  bool Flag(const char* name, bool otherwise) const;
  std::optional<std::string> Text(const char* name) const;
  // An object; empty when absent.
  Json Object(const char* name) const;
  // A text or a list of texts, none of them empty; at most `most`.
  std::vector<std::string> Texts(const char* name, size_t most) const;
  std::vector<int32_t> Integers(const char* name) const;
  bool Has(const char* name) const { return !remote::At(body_, name).is_null(); }
  const Json& At(const char* name) const { return remote::At(body_, name); }

  // Refuses the field unless it is absent or says what would be done anyway.
  void Lacks(const char* name, const Json& harmless) const;

 private:
  const Json& body_;
};

[[noreturn]] void RefuseField(const char* name, const std::string& why);

}  // namespace kevin::local
