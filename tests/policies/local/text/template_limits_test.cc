// Templates that want to take everything: each must be refused, soon and without taking it.
#include <chrono>
#include <random>

#include "policies/local/text/jinja/template.h"
#include "tests/policies/local/text/text_fixture.h"

namespace kevin::local::jinja {
namespace {

std::string Repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

std::string Refusal(const std::string& source) {
  const auto start = std::chrono::steady_clock::now();
  std::string reason = "rendered";
  try {
    Template(source).Render({{"x", {1, 2, 3}}, {"s", "text"}}, [] { return std::tm{}; });
  } catch (const TemplateError& error) {
    reason = error.what();
    CHECK(error.line() > 0);
  }
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 30);
  return reason;
}

bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_CASE("loops without end") {
  CHECK(Refusal("{{ range(10**9) }}") == "range() of more than 100000 items");
  CHECK(Refusal("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}") ==
        "the template takes more than 20000000 steps");
  CHECK(
      Has(Refusal("{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}"),
          "steps"));
  CHECK(Has(Refusal("{% for i in range(99999) %}{{ range(99999) | sort | sum }}{% endfor %}"), "steps"));
  CHECK(Has(Refusal("{% set n = range(99999) | list %}{{ n | map('string') | unique | list | length }}"),
            "steps"));
}

TEST_CASE("recursion without end") {
  CHECK(Refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}") == "macros call each other too deep");
  CHECK(Refusal("{% macro a(f) %}{{ f(f) }}{% endmacro %}{{ a(a) }}") == "macros call each other too deep");
  CHECK(Has(Refusal("{% macro m(n) %}" + Repeated("{% if n %}", 40) + "{{ m(n) }}" +
                    Repeated("{% endif %}", 40) + "{% endmacro %}{{ m(1) }}"),
            "nested too deep"));
  CHECK(
      Refusal("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}") ==
      "the template takes more than 20000000 steps");
}

TEST_CASE("texts and lists without end") {
  CHECK(Has(Refusal("{{ 'x' * 10**12 }}"), "more than 16777216 bytes"));
  CHECK(Has(Refusal("{{ 'ab' * (2**63 - 1) }}"), "a number is too large"));
  CHECK(Has(Refusal("{{ [0] * 10**12 }}"), "too long"));
  CHECK(Has(
      Refusal(
          "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
      "bytes"));
  CHECK(Has(
      Refusal(
          "{% set ns = namespace(s=[0]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"),
      "steps"));
  CHECK(Has(Refusal("{% set a = 'a' * 10**6 %}{{ a.replace('a', a) }}"), "bytes"));
  CHECK(Has(Refusal("{% set a = 'a' * 10**6 %}{{ ([a] * 1000) | join(a) }}"), "bytes"));
  CHECK(Has(Refusal("{% set a = 'a' * 10**6 %}{{ a | indent(width=10**9) }}"), "too wide"));
  CHECK(Has(Refusal("{{ 'a'.center(10**12) }}"), "bytes"));
  CHECK(Has(Refusal("{{ '%999999999d' % 1 }}"), "too large"));
  CHECK(Has(Refusal("{{ x | tojson(indent=10**9) }}"), "too wide"));
  CHECK(Has(Refusal("{{ x | batch(10**12, 'f') }}"), "steps"));
  CHECK(Has(Refusal("{{ 10 ** 10 ** 10 }}"), "too large"));
  CHECK(Has(Refusal("{{ 2 ** 99999999 }}"), "too large"));
  CHECK(Has(Refusal("{% set a = 'a' * 10**7 %}{% for i in range(999) %}{{ a }}{% endfor %}"), "bytes"));
  CHECK(Has(Refusal("{% set a = 'a' * 10**7 %}{% for i in range(9999) %}{% set b = a.upper() %}{% endfor %}"),
            "steps"));
  CHECK(Has(Refusal("{{ strftime_now('%c' * 9999) }}"), "too long"));
}

TEST_CASE("trees without end") {
  CHECK(Has(Refusal("{{ " + Repeated("(", 5000) + "1" + Repeated(")", 5000) + " }}"), "nested too deep"));
  CHECK(Has(Refusal("{{ " + Repeated("[", 5000) + Repeated("]", 5000) + " }}"), "nested too deep"));
  CHECK(Has(Refusal("{{ " + Repeated("not ", 5000) + "1 }}"), "nested too deep"));
  CHECK(Has(Refusal("{{ " + Repeated("-", 5000) + "1 }}"), "nested too deep"));
  CHECK(Has(Refusal("{{ 1" + Repeated(" + 1", 5000) + " }}"), "too long"));
  CHECK(Has(Refusal("{{ s" + Repeated(" | trim", 5000) + " }}"), "too long"));
  CHECK(Has(Refusal("{{ s" + Repeated(".a", 5000) + " }}"), "too long"));
  CHECK(Has(Refusal("{{ 1" + Repeated(" if 1 else 1", 5000) + " }}"), "nested too deep"));
  CHECK(Has(Refusal(Repeated("{% if 1 %}", 5000) + Repeated("{% endif %}", 5000)), "nested too deep"));
  CHECK(Has(Refusal("{% for " + Repeated("(", 5000) + "a" + Repeated(")", 5000) + " in x %}{% endfor %}"),
            "nested"));
  CHECK(Has(Refusal(std::string(2 << 20, 'x')), "1048576 are the most"));
  std::string deep =
      "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}";
  CHECK(Has(Refusal(deep + "{{ ns.l }}"), "nested too deep"));
  CHECK(Has(Refusal(deep + "{{ ns.l | tojson }}"), "nested too deep"));
  CHECK(Has(Refusal(deep + "{% set a = ns.l %}" + deep + "{{ ns.l == a }}"), "nested too deep"));
  CHECK(Has(Refusal("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"), "nested too deep"));
  // These would be freed by recursion, and the stack is small.
  for (const char* step : {"[ns.l]", "{1: ns.l}", "[ns.l].index", "ns.l.l"}) {
    INFO(step);
    CHECK(Has(Refusal("{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [" +
                      std::string(step) + "] %}{% endfor %}"),
              std::string(step) == "ns.l.l" ? "rendered" : "nested too deep"));
  }
  CHECK(Has(
      Refusal(
          "{% set ns = namespace(l=0) %}{% macro m() %}{% for i in [ns.l] %}{% set ns.l = loop %}{% endfor %}"
          "{% endmacro %}{% for i in range(99999) %}{{ m() }}{% endfor %}"),
      "nested too deep"));
  CHECK(Refusal("{% set ns = namespace(l=0) %}{% for i in range(99999) %}{% set ns.l = namespace(l=ns.l) %}"
                "{% endfor %}") == "rendered");
}

TEST_CASE("long chains that are fine") {
  const Template wide("{{ 1" + Repeated(" + 1", 200) + " }}{% if false %}" +
                      Repeated("{% elif false %}", 3000) + "{% else %}!{% endif %}{{ 'a'" +
                      Repeated(" ~ 'a'", 3000) + " }}");
  CHECK(wide.Render(nlohmann::ordered_json::object(), [] { return std::tm{}; }) ==
        "201!" + std::string(3001, 'a'));
}

TEST_CASE("damaged templates render or are refused, and nothing worse") {
  std::mt19937 rng(4);
  int rendered = 0, refused = 0;
  const auto golden = ReadGolden<nlohmann::ordered_json>("renderings.json");
  for (const char* name : {"turns.jinja", "thinking.jinja", "dated.jinja", "macros.jinja"}) {
    const std::string good = ReadText(Goldens() / "templates" / name);
    nlohmann::ordered_json variables = golden.at("extras").at(1);
    variables["messages"] = golden.at("conversations").at("calls");
    for (int i = 0; i < 300; ++i) {
      std::string text = good;
      for (size_t n = 1 + rng() % 3; n > 0; --n) {
        const size_t at = rng() % text.size();
        static const std::string kBytes = "{}%#-+'\"|.()[]=, \n0a~\xC3";
        if (rng() % 2 == 0) {
          text[at] = kBytes[rng() % kBytes.size()];
        } else {
          text.erase(at, 1 + rng() % 10);
        }
      }
      try {
        Template(text).Render(variables, [] { return std::tm{}; });
        ++rendered;
      } catch (const TemplateError& error) {
        ++refused;
        CHECK(error.line() > 0);
      }
    }
  }
  CHECK(rendered > 50);
  CHECK(refused > 50);
}

}  // namespace
}  // namespace kevin::local::jinja
