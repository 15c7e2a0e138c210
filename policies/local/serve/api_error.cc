#include "policies/local/serve/api_error.h"

namespace kevin::local {

Json ApiError::Body() const {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const char* type = status_ >= 500 ? "server_error" : "invalid_request_error";
  return {{"error",
           {{"message", remote::ValidUtf8(what())},
            {"type", type},
            {"param", text_or_null(parameter_)},
            {"code", text_or_null(code_)}}}};
}

}  // namespace kevin::local
