#pragma once
// A renderer for Jinja templates: the subset that chat templates use, with the settings of the library
// transformers. This is the only header that code outside this folder includes.
//
//   Template chat(source);                            parses once
//   std::string text = chat.Render(variables, now);   any number of times, from any thread
//
// Settings: trim_blocks and lstrip_blocks are on; nothing is escaped; {% break %}, {% continue %} and
// {% generation %} exist; tojson writes non-ASCII characters as they are; raise_exception and strftime_now
// exist. A template runs in a sandbox: it reaches no files, changes nothing but namespaces, and stays within
// `Limits`.
//
// Not supported: include, import, extends, block, recursive loops, do, i18n, Markup (`safe` has no effect)
// and the filters that make HTML. Integers have 64 bits; upper and lower map one character to one.
//
// The folder: lexer.cc and parser.cc with expression_parser.cc turn text into a tree (parser.h, tree.h);
// expressions.cc and statements.cc evaluate it over the values of value.h; methods.cc, filters.cc,
// text_filters.cc, python_text.cc and template.cc hold what templates may call.

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kevin::local::jinja {

// What one template may use. Templates come from downloaded folders and are not trusted.
struct Limits {
  size_t source_bytes = 1 << 20;
  int depth = 100;               // nesting of expressions and statements in the source
  int calls = 100;               // nesting of macro calls
  size_t steps = 20'000'000;     // evaluated nodes; 16 bytes of produced text count as one step
  size_t text_bytes = 16 << 20;  // one string, and the whole output
  size_t range_items = 100'000;  // as in Jinja's sandbox
};

// Any failure of a template. ChatTemplate turns it into Error.
class TemplateError : public std::runtime_error {
 public:
  explicit TemplateError(const std::string& reason, int line = 0) : std::runtime_error(reason), line_(line) {}
  int line() const { return line_; }  // from 1; 0: not known yet

 private:
  int line_;
};

using Clock = std::function<std::tm()>;  // the local time, for strftime_now

struct Body;  // tree.h

// Immutable; safe for any thread.
class Template {
 public:
  // Parses. Throws TemplateError with its line.
  explicit Template(std::string_view source, const Limits& limits = {});
  // `variables`: a JSON object. Throws TemplateError with its line, also for the template's own
  // raise_exception.
  std::string Render(const nlohmann::ordered_json& variables, const Clock& now) const;

 private:
  Limits limits_;
  std::shared_ptr<const Body> body_;
};

}  // namespace kevin::local::jinja
