#pragma once
// Tokens to trees.

#include <string_view>

#include "policies/local/text/jinja/limits.h"
#include "policies/local/text/jinja/statement.h"

namespace kevin::local::jinja {

// Throws TemplateError with its line.
Body Parse(std::string_view source, const Limits& limits);

}  // namespace kevin::local::jinja
