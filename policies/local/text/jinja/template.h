#pragma once
// Jinja, as much of it as chat templates use, with the settings of transformers: trim_blocks, lstrip_blocks,
// no escaping, break and continue, `generation` blocks, tojson without escapes, raise_exception,
// strftime_now; in a sandbox, where nothing but namespaces can be changed.
//
// Left out: include, import, extends, block, recursive loops, do, i18n, the filters that make HTML.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "policies/local/text/jinja/parser.h"

namespace kevin::local::jinja {

// Never changes once made: any thread.
class Template {
 public:
  // Throws TemplateError with its line.
  explicit Template(std::string_view source, const Limits& limits = {});
  // `variables`: an object. Throws TemplateError with its line, also for the template's own raise_exception.
  std::string Render(const nlohmann::ordered_json& variables, const Run::Clock& now) const;

 private:
  Limits limits_;
  Body body_;
};

// Functions that every template has: range, namespace, dict, raise_exception, strftime_now.
void SetGlobals(Scope& scope);

}  // namespace kevin::local::jinja
