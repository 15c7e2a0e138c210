#include "tools/report/html.h"

#include <algorithm>
#include <cstdint>

#include "agent/text.h"
#include "env/printable.h"

namespace kevin {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = Utf8At(text, at);
    const std::string_view bytes = text.substr(at, c.bytes);
    at += c.bytes;
    if (c.code == '&') {
      out += "&amp;";
    } else if (c.code == '<') {
      out += "&lt;";
    } else if (c.code == '>') {
      out += "&gt;";
    } else if (c.code == '"') {
      out += "&quot;";
    } else if (c.code == '\'') {
      out += "&#39;";
    } else if (!c.is_valid || (c.code < ' ' && c.code != '\n' && c.code != '\t')) {
      out += kReplacement;
    } else if (IsHidden(c.code) && c.code >= ' ') {
      out += CharacterEscape(c.code);
    } else {
      out += bytes;
    }
  }
  return out;
}

std::string Details(const std::string& summary, const std::string& body, const std::string& css_class) {
  const std::string attribute = css_class.empty() ? "" : " class=\"" + css_class + "\"";
  return "<details" + attribute + "><summary>" + summary + "</summary>" + body + "</details>\n";
}

std::string HtmlTable(const std::string& head, const std::string& body) {
  if (body.empty()) return "";
  return "<div class=\"scroll\"><table><thead>" + head + "</thead><tbody>" + body +
         "</tbody></table></div>\n";
}

const char kPageStyle[] = R"(
:root { --ink: #1a1d21; --quiet: #5f6771; --line: #dde1e6; --paper: #ffffff; --panel: #f6f7f9;
  --s0: #1f5fd0; --s1: #c2570c; --s2: #0b7a5b; --s3: #8435c9; --s4: #b3123f; --s5: #64748b; --s6: #8a6d1d;
  --good: #0b7a5b; --bad: #b3123f; --add: #e3f5ea; --del: #fdeaea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --quiet: #9aa3ad; --line: #353b43; --paper: #16191d;
  --panel: #1e2227; --s0: #79a9ff; --s1: #f0a35e; --s2: #4cc9a0; --s3: #c79bf2; --s4: #ff8095; --s5: #a3afbf; --s6: #d8b84a;
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

namespace {

using Kind = DiffLine::Kind;
using Lines = std::vector<std::string_view>;
constexpr int kMostChanges = 2000;

void Push(std::vector<DiffLine>* out, Kind kind, std::string_view line) {
  out->push_back({kind, std::string(line)});
}

std::vector<DiffLine> Replaced(const Lines& a, const Lines& b) {
  std::vector<DiffLine> all;
  for (const std::string_view line : a) Push(&all, Kind::kRemoved, line);
  for (const std::string_view line : b) Push(&all, Kind::kAdded, line);
  return all;
}

// Every line of both texts, in order. Walks back over the furthest reaching points of each number of changes.
std::vector<DiffLine> AllLines(const Lines& a, const Lines& b) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  const int limit = std::min(n + m, kMostChanges), offset = limit + 1;
  std::vector<int> reach(static_cast<size_t>(2 * limit + 3), 0);
  std::vector<std::vector<int>> history;
  const auto at = [&](std::vector<int>& v, int k) -> int& { return v[static_cast<size_t>(k + offset)]; };
  bool is_found = false;
  for (int d = 0; d <= limit && !is_found; ++d) {
    history.push_back(reach);
    for (int k = -d; k <= d && !is_found; k += 2) {
      const bool down = k == -d || (k != d && at(reach, k - 1) < at(reach, k + 1));
      int x = down ? at(reach, k + 1) : at(reach, k - 1) + 1;
      while (x < n && x - k < m && x - k >= 0 && a[static_cast<size_t>(x)] == b[static_cast<size_t>(x - k)])
        ++x;
      at(reach, k) = x;
      is_found = x >= n && x - k >= m;
    }
  }
  if (!is_found) return Replaced(a, b);
  std::vector<DiffLine> backwards;
  int x = n, y = m;
  for (int d = static_cast<int>(history.size()) - 1; d >= 0; --d) {
    std::vector<int>& v = history[static_cast<size_t>(d)];
    const int k = x - y;
    const bool down = k == -d || (k != d && at(v, k - 1) < at(v, k + 1));
    const int from_k = down ? k + 1 : k - 1, from_x = at(v, from_k), from_y = from_x - from_k;
    for (; x > from_x && y > from_y; --x, --y) Push(&backwards, Kind::kSame, a[static_cast<size_t>(x - 1)]);
    if (d == 0) break;
    if (down) {
      Push(&backwards, Kind::kAdded, b[static_cast<size_t>(--y)]);
    } else {
      Push(&backwards, Kind::kRemoved, a[static_cast<size_t>(--x)]);
    }
  }
  std::reverse(backwards.begin(), backwards.end());
  return backwards;
}

}  // namespace

std::vector<DiffLine> DiffLines(std::string_view before, std::string_view after, size_t context) {
  const std::vector<DiffLine> all = AllLines(SplitLines(before), SplitLines(after));
  std::vector<bool> is_shown(all.size(), false);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind == Kind::kSame) continue;
    for (size_t j = i - std::min(i, context); j < std::min(all.size(), i + context + 1); ++j)
      is_shown[j] = true;
  }
  std::vector<DiffLine> shown;
  int line = 1;  // of `after`
  for (size_t i = 0; i < all.size(); ++i) {
    if (is_shown[i]) {
      if (i > 0 && !is_shown[i - 1]) shown.push_back({Kind::kGap, "@@ line " + std::to_string(line) + " @@"});
      shown.push_back(all[i]);
    }
    line += all[i].kind != Kind::kRemoved;
  }
  return shown;
}

}  // namespace kevin
