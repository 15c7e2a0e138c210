#pragma once
// What Python's strings can do, for methods and filters alike. Texts are valid UTF-8.

#include <string>
#include <string_view>
#include <vector>

#include "policies/local/text/jinja/run.h"

namespace kevin::local::jinja {

enum class Side { kLeft, kRight, kBoth };
// Without white space at the ends, or without any of `characters`.
std::string_view Stripped(std::string_view text, Side side, const std::string* characters = nullptr);
// `most` splits; -1: all. Without separator: by runs of white space.
std::vector<Value> SplitText(Run& run, const std::string& text, const std::string* separator, int64_t most,
                             bool from_right);
std::vector<Value> SplitLines(Run& run, const std::string& text, bool keep_ends = false);
std::string Replaced(Run& run, const std::string& text, const std::string& from, const std::string& to,
                     int64_t most);
std::string Capitalized(std::string_view text);
std::string Titled(std::string_view text);  // str.title
std::string Justified(Run& run, const std::string& text, int64_t width, Side where, const std::string& fill);
std::string Joined(Run& run, const std::vector<Value>& items, const std::string& separator, bool convert);

}  // namespace kevin::local::jinja
