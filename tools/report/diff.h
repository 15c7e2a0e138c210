#pragma once
// What changed from one text to the next, by lines.

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

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
