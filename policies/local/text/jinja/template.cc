#include "policies/local/text/jinja/template.h"

namespace kevin::local::jinja {

Template::Template(std::string_view source, const Limits& limits)
    : limits_(limits), body_(Parse(source, limits)) {}

std::string Template::Render(const nlohmann::ordered_json& variables, const Run::Clock& now) const {
  Run run(limits_, now);
  SetGlobals(*run.scope);
  const Within within(run);
  for (const auto& [name, value] : variables.items()) run.scope->Set(name, Value::FromJson(value));
  body_.Execute(run);
  return std::move(run.output);
}

}  // namespace kevin::local::jinja
