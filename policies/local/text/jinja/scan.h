#pragma once
// Literals of template expressions.

#include <string_view>

#include "policies/local/text/jinja/lexer.h"

namespace kevin::local::jinja {

// Scans what begins at `position` of an expression and moves past it. Throws TemplateError without a line.
Token ScanString(std::string_view source, size_t& position);  // at a quote
Token ScanNumber(std::string_view source, size_t& position);  // at a digit
Token ScanName(std::string_view source, size_t& position);    // empty text: no name begins here

}  // namespace kevin::local::jinja
