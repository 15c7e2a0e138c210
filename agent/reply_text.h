#pragma once
// The text of a reply before it is read: line ends, reasoning in tags, characters that nobody sees. Linear in the
// text. Pure; any thread.

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

std::string WithUnixLines(std::string_view text);  // \r\n and \r become \n

// Reasoning in tags, such as <think>…</think> or [THINK]…[/THINK], in either case of letters. Everything before a
// closing tag without an opening one is reasoning too: chat templates may write the opening one. A tag behind a
// quote is text.
struct ReplyAnswer {
  std::string text;       // without reasoning
  std::string open_tag;   // "<think>": it is never closed, and everything behind it was dropped; empty: none
  std::string behind_it;  // what was dropped there
};
ReplyAnswer WithoutReasoning(std::string text);

// A character that was taken out of a text, or replaced by a space.
struct HiddenCharacter {
  size_t line = 0;   // of the text, from 0
  std::string name;  // "U+200B", "a terminal sequence"
  bool is_space = false;
};

// Compilers reject characters without a width, marks of direction and spaces other than ' ', and nobody sees why;
// terminal sequences act where the text is printed. Lines stay. A byte order mark at the beginning is not counted.
struct CleanText {
  std::string text;
  std::vector<HiddenCharacter> hidden;  // at most kMostHidden, in order
};
inline constexpr size_t kMostHidden = 1000;
CleanText WithoutHidden(std::string_view text);

// A sentence on what was taken out of lines `begin` to `end` of the text; `first`: the number that line `begin` has
// in the code, 0: not to be said. Empty: nothing was.
std::string HiddenNote(const std::vector<HiddenCharacter>& hidden, size_t begin, size_t end, size_t first);

}  // namespace kevin
