#pragma once
// Values as Python writes them.

#include <optional>
#include <string>

#include "policies/local/text/jinja/run.h"

namespace kevin::local::jinja {

std::string Str(Run& run, const Value& value);   // as printed
std::string Repr(Run& run, const Value& value);  // as within a printed list

// Python's json.dumps with ensure_ascii off, as transformers has it.
struct JsonLayout {
  std::optional<std::string> indent;  // of one level; absent: all in one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ascii = false, sort_keys = false;
};
std::string ToJson(Run& run, const Value& value, const JsonLayout& layout);

std::string FloatText(double number);  // repr(float)

}  // namespace kevin::local::jinja
