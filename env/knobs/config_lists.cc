#include "env/knobs/config_lists.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace kevin {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr size_t kLongestName = 64;  // "triton.runtime.autotuner.Config("
constexpr size_t kLongestList = 1 << 16;
constexpr int kMostTried = 256;

bool IsNamePart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The first byte behind a string or comment of Python that begins at `at`; `at` itself where none does.
size_t BehindStringOrComment(std::string_view text, size_t at) {
  if (text[at] == '#') return std::min(text.find('\n', at), text.size());
  if (text[at] != '"' && text[at] != '\'') return at;
  const std::string triple(3, text[at]);
  const bool is_long = text.substr(at, 3) == triple;
  const std::string_view quote = is_long ? std::string_view(triple) : text.substr(at, 1);
  for (size_t i = at + quote.size(); i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text.substr(i, quote.size()) == quote) {
      return i + quote.size();
    } else if (!is_long && text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

// Calls `use(byte, at)` for what is neither string nor comment; ends where it returns false.
template <typename Use>
void ForEachCodeByte(std::string_view text, size_t at, const Use& use) {
  while (at < text.size()) {
    const size_t behind = BehindStringOrComment(text, at);
    if (behind != at) {
      at = behind;
    } else if (!use(text[at], at)) {
      return;
    } else {
      ++at;
    }
  }
}

// "triton.Config(...)", "Config(...)" or "tr.Config(...)", and nothing behind its bracket.
bool IsConfigCall(std::string_view text, TextRange range) {
  const std::string_view entry = text.substr(range.first, range.second - range.first);
  const size_t open = entry.find('(');
  if (open == std::string_view::npos) return false;
  std::string_view name = entry.substr(0, open);
  name = name.substr(0, name.find_last_not_of(kSpace) + 1);
  if (!name.ends_with("Config") ||
      !std::all_of(name.begin(), name.end(), [](char c) { return IsNamePart(c) || c == '.'; }))
    return false;
  if (name.size() > 6 && name[name.size() - 7] != '.') return false;
  int depth = 0;
  size_t close = 0;
  ForEachCodeByte(entry, open, [&](char c, size_t at) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    close = at;
    return depth > 0;
  });
  return depth == 0 && close + 1 == entry.size();
}

// The list that begins with the bracket at `open`; nullopt: it has other entries than calls of Config.
std::optional<ConfigList> ReadList(std::string_view text, size_t open) {
  ConfigList list;
  int depth = 0;
  size_t end = 0;
  TextRange entry{
      0, 0};  // from its first to behind its last byte that is neither blank nor in a string or comment
  bool ok = true;
  const auto add = [&] {
    if (entry.second == 0) return;  // behind the last comma
    ok = IsConfigCall(text, entry);
    list.entries.push_back(std::exchange(entry, {0, 0}));
  };
  ForEachCodeByte(text.substr(0, open + kLongestList), open, [&](char c, size_t at) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth == 0) end = at;
    if (depth == 0 || (depth == 1 && c == ',')) {
      add();
    } else if (at > open && kSpace.find(c) == std::string_view::npos) {
      entry = {entry.second == 0 ? at : entry.first, at + 1};
    }
    return depth > 0 && ok;
  });
  if (!ok || end == 0 || list.entries.size() < 2) return std::nullopt;
  list.content = {open + 1, end};
  return list;
}

}  // namespace

std::vector<ConfigList> FindConfigLists(const std::string& source) {
  std::vector<ConfigList> lists;
  if (source.find("Config") == std::string::npos) return lists;
  const std::string_view text = source;
  size_t behind = 0;
  int tried = 0;
  ForEachCodeByte(text, 0, [&](char c, size_t at) {
    if (c != '[' || at < behind) return true;
    const size_t word = text.find_first_not_of(kSpace, at + 1);
    // Most lists have nothing to do with it. Reading each would take the square of a hostile text's length.
    if (word == std::string_view::npos || !(IsNamePart(text[word]) || text[word] == '#')) return true;
    if (text[word] != '#' && text.substr(word, kLongestName).find("Config") == std::string_view::npos)
      return true;
    if (++tried > kMostTried) return false;
    if (auto list = ReadList(text, at)) {
      behind = list->content.second;
      lists.push_back(std::move(*list));
    }
    return true;
  });
  return lists;
}

std::string WithEntries(const std::string& source, const std::vector<ConfigList>& lists,
                        const std::vector<size_t>& entries) {
  std::string text = source;
  for (size_t i = lists.size(); i-- > 0;) {
    const auto [begin, end] = lists[i].content;
    const TextRange entry = lists[i].entries.at(entries.at(i));
    const std::string old = source.substr(begin, end - begin);
    std::string kept = source.substr(entry.first, entry.second - entry.first);
    const auto missing =
        std::count(old.begin(), old.end(), '\n') - std::count(kept.begin(), kept.end(), '\n');
    kept.append(static_cast<size_t>(missing), '\n');
    text.replace(begin, end - begin, kept);
  }
  return text;
}

}  // namespace kevin
