#pragma once
// The fenced code blocks of a reply and the languages that they are marked with. The rules of fences are in agent/parse.h.
// Pure; any thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kevin {

struct ReplyBlock {
  std::string language;                 // of its mark, lower case; empty: none
  std::string code;                     // without the fence's indentation
  size_t first_line = 0, end_line = 0;  // lines of the reply, fences included, end exclusive
  bool closed = false;
};

// In the order of the reply; only the last one may be not closed. `kind`: of the candidate asked for. Time is linear in
// the lines, also where many fences stand in literals.
std::vector<ReplyBlock> FindBlocks(const std::vector<std::string_view>& lines, const std::string& kind);

// The code defines what every candidate of the kind has: a function `launch`, in Python `class ModelNew` or `def launch`.
bool DefinesCandidate(std::string_view code, const std::string& kind);

bool IsPtx(std::string_view language);

// Marked for the kind: `cuda` or `cu`, `ptx`, ...
bool IsTagOf(std::string_view language, const std::string& kind);

// A candidate of the kind may come in this language.
bool IsOfKind(std::string_view language, const std::string& kind);

// A block in this language is never the candidate, whatever it mentions.
bool IsOtherLanguage(std::string_view language, const std::string& kind);

}  // namespace kevin
