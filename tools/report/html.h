#pragma once
// The HTML of a report's page: escaped text, tables, the style, and differences of kernels by lines.

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

// Safe as an element's text and as an attribute's value in quotes; bytes that are no UTF-8 and control characters
// become U+FFFD, other hidden characters (env/printable.h) escapes such as \u202e.
std::string Escaped(std::string_view text);

// "<details><summary>SUMMARY</summary>BODY</details>"; both are HTML.
std::string Details(const std::string& summary, const std::string& body, const std::string& css_class = "");

// A table whose cells are HTML; the first row is its heading, first cells are row headings. "" without rows.
std::string HtmlTable(const std::string& rows_of_head, const std::string& rows_of_body);

extern const char kPageStyle[];

// --- What changed from one text to the next, by lines ---

struct DiffLine {
  enum class Kind { kSame, kAdded, kRemoved, kGap };  // kGap: unchanged lines that are not shown
  Kind kind = Kind::kSame;
  std::string text;  // without its line end; of a gap: "@@ line 12 @@", where it goes on in `after`
};

// A shortest list of changes (Myers, "An O(ND) difference algorithm and its variations", 1986) with `context`
// unchanged lines around each. Equal texts give nothing. Texts that differ in more than some thousand lines
// are shown as one removed and one added block.
std::vector<DiffLine> DiffLines(std::string_view before, std::string_view after, size_t context = 3);

}  // namespace kevin
