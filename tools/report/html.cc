#include "tools/report/html.h"

#include <cstdint>

namespace kevin {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

// The length of the UTF-8 sequence at `at`, or 0.
size_t SequenceLength(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (length == 3 && first == 0xe0 && byte(1) < 0xa0) return 0;
  if (length == 3 && first == 0xed && byte(1) > 0x9f) return 0;
  if (length == 4 && ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f))) return 0;
  return length;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t length = SequenceLength(text, at);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (length == 0 || (length == 1 && static_cast<uint8_t>(c) < ' ' && c != '\n' && c != '\t')) {
      out += kReplacement;
    } else {
      out += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return out;
}

std::string Details(const std::string& summary, const std::string& body, const std::string& css_class) {
  const std::string attribute = css_class.empty() ? "" : " class=\"" + css_class + "\"";
  return "<details" + attribute + "><summary>" + summary + "</summary>" + body + "</details>\n";
}

std::string HtmlTable(const std::string& head, const std::string& body) {
  return "<div class=\"scroll\"><table><thead>" + head + "</thead><tbody>" + body +
         "</tbody></table></div>\n";
}

const char kPageStyle[] = R"(
:root { --ink: #1a1d21; --quiet: #5f6771; --line: #dde1e6; --paper: #ffffff; --panel: #f6f7f9;
  --s0: #1f5fd0; --s1: #c2570c; --s2: #0b7a5b; --s3: #8435c9; --s4: #b3123f; --s5: #64748b;
  --good: #0b7a5b; --bad: #b3123f; --add: #e3f5ea; --del: #fdeaea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --quiet: #9aa3ad; --line: #353b43; --paper: #16191d;
  --panel: #1e2227; --s0: #79a9ff; --s1: #f0a35e; --s2: #4cc9a0; --s3: #c79bf2; --s4: #ff8095; --s5: #a3afbf;
  --good: #4cc9a0; --bad: #ff8095; --add: #143325; --del: #3b1d22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .4rem; } p { margin: .3rem 0 .6rem; }
.quiet { color: var(--quiet); } .small { font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; margin: .4rem 0; }
th, td { padding: .22rem .7rem .22rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; } td:not(:first-child), th:not(:first-child) { white-space: nowrap; }
thead th { color: var(--quiet); font-weight: 600; } tbody th { font-weight: 500; }
.tiles { display: flex; flex-wrap: wrap; gap: .7rem; margin: .7rem 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .55rem .9rem; min-width: 9.5rem; }
.tile b { display: block; font-size: 1.35rem; font-weight: 650; } .tile span { display: block; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(25rem, 1fr)); gap: 1rem; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .7rem; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--quiet); font-size: 11px;
  font-family: inherit; } svg .axis { stroke: var(--line); stroke-width: 1; fill: none; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .82rem; margin-top: .3rem; }
.legend i { display: inline-block; width: 1.1rem; height: .3rem; border-radius: 2px; margin-right: .35rem;
  vertical-align: middle; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .35rem 0; padding: 0 .7rem; }
details[open] { padding-bottom: .6rem; } summary { cursor: pointer; padding: .35rem 0; }
details.problem > summary { font-weight: 600; } details.plain { border: 0; padding: 0; }
.square { display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; }
.badge { display: inline-block; padding: 0 .45rem; border-radius: 999px; font-size: .78rem; border: 1px solid currentColor; }
.measured { color: var(--good); } .failed { color: var(--bad); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .6rem; overflow: auto;
  max-height: 34rem; margin: .4rem 0; font: 12.5px/1.45 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; }
pre .a, pre .d, pre .h { display: block; margin: 0 -.6rem; padding: 0 .6rem; } pre .a { background: var(--add); }
pre .d { background: var(--del); } pre .h { color: var(--quiet); }
nav { columns: 3 16rem; font-size: .87rem; } nav a { display: block; } a { color: var(--s0); }
)";

}  // namespace kevin
