#pragma once
// What a client did wrong, or what went wrong for it, as OpenAI's API says it.

#include <stdexcept>
#include <string>

#include "policies/remote/json.h"

namespace kevin::local {

using Json = remote::Json;

class ApiError : public std::runtime_error {
 public:
  // `status`: HTTP's. `code` as in OpenAI's list ("context_length_exceeded"), `parameter` the field at fault;
  // both may be empty.
  ApiError(int status, const std::string& message, std::string code = "", std::string parameter = "")
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        parameter_(std::move(parameter)) {}
  int status() const { return status_; }
  Json Body() const;  // {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

 private:
  int status_;
  std::string code_, parameter_;
};

}  // namespace kevin::local
