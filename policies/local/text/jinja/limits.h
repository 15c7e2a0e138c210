#pragma once
// What a template from a folder that nobody trusts may use up, and how it fails.

#include <cstddef>
#include <stdexcept>
#include <string>

namespace kevin::local::jinja {

struct Limits {
  size_t source_bytes = 1 << 20;
  int depth = 100;               // of nested expressions and statements in the source
  int calls = 100;               // of macros in one another
  size_t steps = 20'000'000;     // evaluated nodes; 16 bytes of made text count as one, too
  size_t text_bytes = 64 << 20;  // of one string or the whole output
  size_t range_items = 100'000;  // as in Jinja's sandbox
};

// Never leaves ChatTemplate.
class TemplateError : public std::runtime_error {
 public:
  explicit TemplateError(const std::string& reason, int line = 0) : std::runtime_error(reason), line_(line) {}
  int line() const { return line_; }  // from 1; 0: not known yet

 private:
  int line_;
};

}  // namespace kevin::local::jinja
