#include "agent/edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "agent/code_text.h"
#include "agent/text.h"

namespace kevin {
namespace {

constexpr size_t kMaxQuotedBytes = 100;            // of a line in a message
constexpr size_t kMostComparedLines = 40'000'000;  // of a diff with the kernel, at most

struct Hunk {
  std::optional<size_t> line;              // of the old file, from 0
  std::vector<std::string> before, after;  // lines
  std::string marks;                       // of all its lines: ' ', '-', '+'
};

std::string Quoted(std::string_view line) { return "`" + Clip(Trim(line), kMaxQuotedBytes) + "`"; }

// "@@ -12,7 +12,9 @@": 11.
std::optional<size_t> StatedLine(std::string_view header) {
  const size_t minus = header.find('-');
  if (minus == std::string_view::npos || minus + 1 >= header.size()) return std::nullopt;
  const long line = std::strtol(std::string(header.substr(minus + 1, 9)).c_str(), nullptr, 10);
  return line > 0 ? std::optional(static_cast<size_t>(line) - 1) : std::nullopt;
}

bool IsFileHeader(const std::vector<std::string_view>& lines, size_t i) {
  const std::string_view line = lines[i];
  if (line.starts_with("diff ") || line.starts_with("index ") || line.starts_with("\\ No newline"))
    return true;
  if (line.starts_with("--- ")) return i + 1 < lines.size() && lines[i + 1].starts_with("+++ ");
  return line.starts_with("+++ ") && i > 0 && lines[i - 1].starts_with("--- ");
}

void AddLine(std::string_view line, Hunk* hunk) {
  const char mark = line.empty() ? ' ' : line[0];
  const bool is_marked = mark == ' ' || mark == '+' || mark == '-';
  const std::string text(line.substr(is_marked && !line.empty() ? 1 : 0));
  hunk->marks += is_marked ? mark : ' ';
  if (mark != '+') hunk->before.push_back(text);
  if (mark != '-') hunk->after.push_back(text);
}

// An empty line at the end of a block is no context.
void DropBlankEnd(Hunk* hunk) {
  const auto is_blank = [](const std::vector<std::string>& lines) {
    return !lines.empty() && Trim(lines.back()).empty();
  };
  while (is_blank(hunk->before) && is_blank(hunk->after))
    hunk->before.pop_back(), hunk->after.pop_back(), hunk->marks.pop_back();
}

std::vector<Hunk> HunksOf(std::string_view diff) {
  const std::vector<std::string_view> lines = SplitLines(diff);
  std::vector<Hunk> hunks;
  const bool has_marks =
      std::any_of(lines.begin(), lines.end(), [](std::string_view line) { return line.starts_with("@@"); });
  for (size_t i = 0; i < lines.size(); ++i) {
    if (IsFileHeader(lines, i)) continue;
    if (lines[i].starts_with("@@")) {
      hunks.push_back({StatedLine(lines[i]), {}, {}, ""});
    } else if (!hunks.empty()) {
      AddLine(lines[i], &hunks.back());
    } else if (!has_marks) {
      hunks.emplace_back();
      AddLine(lines[i], &hunks.back());
    }
  }
  for (Hunk& hunk : hunks) DropBlankEnd(&hunk);
  std::erase_if(hunks, [](const Hunk& hunk) { return hunk.before == hunk.after; });
  return hunks;
}

// How many of the hunk's old lines stand in `lines` from `at` on, one after the other.
size_t MatchAt(const std::vector<std::string>& lines, size_t at, const Hunk& hunk, bool loosely) {
  size_t count = 0;
  for (; count < hunk.before.size() && at + count < lines.size(); ++count) {
    const std::string_view theirs = hunk.before[count], ours = lines[at + count];
    if (loosely ? Trim(theirs) != Trim(ours) : TrimRight(theirs) != TrimRight(ours)) break;
  }
  return count;
}

std::optional<size_t> PlaceOf(const std::vector<std::string>& lines, const Hunk& hunk, size_t wanted) {
  std::optional<size_t> place;
  for (const bool loosely : {false, true}) {
    for (size_t at = 0; at < lines.size() && !(loosely && place); ++at) {
      if (MatchAt(lines, at, hunk, loosely) != hunk.before.size()) continue;
      const auto distance = [&](size_t line) { return line > wanted ? line - wanted : wanted - line; };
      if (!place || distance(at) < distance(*place)) place = at;
    }
    if (place) return place;
  }
  return std::nullopt;
}

// What the hunk makes of the lines from `at` on; context stays as it is, white space too.
std::vector<std::string> Changed(const std::vector<std::string>& lines, size_t at, const Hunk& hunk) {
  std::vector<std::string> changed;
  size_t after = 0;
  for (const char mark : hunk.marks) {
    if (mark == ' ') changed.push_back(lines[at]);
    if (mark == '+') changed.push_back(hunk.after[after]);
    at += mark != '+', after += mark != '-';
  }
  return changed;
}

// Which of its lines is the first that the kernel does not have there.
std::string WhyNotPlaced(const std::vector<std::string>& lines, const Hunk& hunk, size_t number) {
  size_t best = 0, most = 0;
  for (size_t at = 0; at < lines.size(); ++at) {
    const size_t count = MatchAt(lines, at, hunk, true);
    if (count > most) most = count, best = at;
  }
  const std::string start = fmt::format("hunk {} of the diff does not apply", number);
  if (most == 0) return fmt::format("{}: the kernel has no line {}", start, Quoted(hunk.before.front()));
  const size_t next = best + most;
  return fmt::format("{}: behind line {} of the kernel, {}, it expects {} and not {}", start, next,
                     Quoted(lines[next - 1]), Quoted(hunk.before[most]),
                     next < lines.size() ? Quoted(lines[next]) : std::string("the end"));
}

bool Defines(const std::vector<FunctionText>& functions, const std::string& name) {
  return std::any_of(functions.begin(), functions.end(),
                     [&](const FunctionText& function) { return function.name == name; });
}

// Whether `text`, masked, calls or launches a function of this name that it does not make itself as a lambda or a macro.
bool Calls(const std::string& text, const std::string& name) {
  if (text.find("auto " + name) != std::string::npos || text.find("#define " + name) != std::string::npos)
    return false;
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t next = text.find_first_not_of(" \n", at + name.size());
    const bool is_word = HasWord(std::string_view(text).substr(at == 0 ? 0 : at - 1, name.size() + 2), name);
    if (is_word && next != std::string::npos && (text[next] == '(' || text[next] == '<')) return true;
  }
  return false;
}

// Not a kernel of its own: `launch`, or another function that it calls, is only in `base`.
bool NeedsBase(std::string_view code, const std::vector<FunctionText>& own,
               const std::vector<FunctionText>& base) {
  const std::string text = Mask(code).text;
  if (text.find("#include") != std::string::npos) return false;
  if (!Defines(own, "launch")) return true;
  return std::any_of(base.begin(), base.end(), [&](const FunctionText& function) {
    return !Defines(own, function.name) && Calls(text, function.name);
  });
}

}  // namespace

bool IsDiff(std::string_view text) {
  bool has_hunk = false, has_change = false;
  for (const std::string_view line : SplitLines(text)) {
    has_hunk |= line.starts_with("@@") || line.starts_with("--- ") || line.starts_with("diff ");
    has_change |= has_hunk && (line.starts_with("+") || line.starts_with("-"));
  }
  return has_hunk && has_change;
}

Edited ApplyDiff(std::string_view diff, const std::string& base) {
  const std::vector<Hunk> hunks = HunksOf(diff);
  if (hunks.empty()) return {"", "the diff changes nothing"};
  if (hunks.size() > kMostHunks) return {"", fmt::format("the diff has more than {} hunks", kMostHunks)};
  std::vector<std::string> lines;
  for (const std::string_view line : SplitLines(base)) lines.emplace_back(line);
  size_t searched = 0;
  for (const Hunk& hunk : hunks) searched += hunk.before.size() * lines.size();
  if (searched > kMostComparedLines) return {"", "the diff is too long for this kernel"};
  std::ptrdiff_t moved = 0;  // lines that earlier hunks have added
  size_t behind = 0;         // the last one
  for (size_t i = 0; i < hunks.size(); ++i) {
    const Hunk& hunk = hunks[i];
    const auto stated =
        hunk.line ? static_cast<std::ptrdiff_t>(*hunk.line) + moved : static_cast<std::ptrdiff_t>(behind);
    size_t wanted = static_cast<size_t>(std::max<std::ptrdiff_t>(0, stated));
    std::optional<size_t> place;
    if (hunk.before.empty() && hunk.line) {  // lines to add and nothing around them: behind the stated line
      place = std::min(wanted + 1, lines.size());
    } else if (!hunk.before.empty()) {
      place = PlaceOf(lines, hunk, wanted);
    }
    if (!place) {
      return {"",
              hunk.before.empty()
                  ? fmt::format("hunk {} of the diff adds lines but does not say where: give context", i + 1)
                  : WhyNotPlaced(lines, hunk, i + 1)};
    }
    const std::vector<std::string> changed = Changed(lines, *place, hunk);
    const auto at = lines.begin() + static_cast<std::ptrdiff_t>(*place);
    const auto rest = lines.erase(at, at + static_cast<std::ptrdiff_t>(hunk.before.size()));
    lines.insert(rest, changed.begin(), changed.end());
    moved += static_cast<std::ptrdiff_t>(hunk.after.size()) - static_cast<std::ptrdiff_t>(hunk.before.size());
    behind = *place + hunk.after.size();
  }
  Edited edited;
  for (const std::string& line : lines) edited.source += line + "\n";
  return edited;
}

namespace {

struct DiffLine {
  char mark;  // ' ', '-', '+'
  std::string_view text;
  size_t before = 0, after = 0;  // lines of both texts above it
};

// From the lengths of the longest common subsequences of all ends.
std::vector<DiffLine> CompareLines(const std::vector<std::string_view>& a,
                                   const std::vector<std::string_view>& b) {
  const size_t width = b.size() + 1;
  std::vector<uint16_t> common((a.size() + 1) * width, 0);
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      const uint16_t skip = std::max(common[(i + 1) * width + j], common[i * width + j + 1]);
      common[i * width + j] =
          a[i] == b[j] ? static_cast<uint16_t>(common[(i + 1) * width + j + 1] + 1) : skip;
    }
  }
  std::vector<DiffLine> lines;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      lines.push_back({' ', a[i], i, j});
      ++i, ++j;
    } else if (j == b.size() || (i < a.size() && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      lines.push_back({'-', a[i], i, j});
      ++i;
    } else {
      lines.push_back({'+', b[j], i, j});
      ++j;
    }
  }
  return lines;
}

std::string HunkText(const std::vector<DiffLine>& lines, size_t begin, size_t end) {
  size_t before = 0, after = 0;
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    before += lines[i].mark != '+', after += lines[i].mark != '-';
    text += fmt::format("{}{}\n", lines[i].mark, lines[i].text);
  }
  return fmt::format("@@ -{},{} +{},{} @@\n{}", lines[begin].before + 1, before, lines[begin].after + 1,
                     after, text);
}

}  // namespace

std::string UnifiedDiff(const std::string& before, const std::string& after, const std::string& before_name,
                        const std::string& after_name) {
  constexpr size_t kMostPairs = 4'000'000, kContext = 2, kMostLines = 60'000;
  const std::vector<std::string_view> a = SplitLines(before), b = SplitLines(after);
  if (a.size() + b.size() > kMostLines || (a.size() + 1) * (b.size() + 1) > kMostPairs) return "";
  const std::vector<DiffLine> lines = CompareLines(a, b);
  std::string text;
  for (size_t i = 0; i < lines.size();) {
    if (lines[i].mark == ' ') {
      ++i;
      continue;
    }
    size_t last = i;  // the last change of this hunk
    for (size_t k = i; k < lines.size() && k <= last + 2 * kContext; ++k) {
      if (lines[k].mark != ' ') last = k;
    }
    const size_t end = std::min(lines.size(), last + kContext + 1);
    text += HunkText(lines, i < kContext ? 0 : i - kContext, end);
    i = end;
  }
  return text.empty() ? "" : fmt::format("--- {}\n+++ {}\n{}", before_name, after_name, text);
}

std::optional<std::string> ReplaceFunctions(std::string_view code, const std::string& base) {
  constexpr size_t kMostFunctions = 2000;  // of `base`
  const std::vector<FunctionText> own = FunctionsIn(code), old = FunctionsIn(base);
  if (own.size() > kMostHunks || old.size() > kMostFunctions) return std::nullopt;
  const bool shares =
      std::any_of(own.begin(), own.end(), [&](const FunctionText& f) { return Defines(old, f.name); });
  if (!shares || !NeedsBase(code, own, old)) return std::nullopt;
  std::string changed = base, pending;
  size_t from = 0;
  for (const FunctionText& function : own) {
    pending += std::string(Trim(code.substr(from, function.end - from))) + "\n\n";
    from = function.end;
    const std::vector<FunctionText> now = FunctionsIn(changed);
    const auto place =
        std::find_if(now.begin(), now.end(), [&](const FunctionText& f) { return f.name == function.name; });
    if (place == now.end()) continue;
    changed.replace(place->begin, place->end - place->begin, TrimRight(pending));
    pending.clear();
  }
  if (!Trim(pending).empty()) {  // helpers behind the last function that `base` has: before all others
    const std::vector<FunctionText> now = FunctionsIn(changed);
    changed.insert(now.empty() ? 0 : now.front().begin, pending);
  }
  return changed;
}

}  // namespace kevin
