#pragma once
// A policy's reply -> the candidate's source, or why there is none. Made for what models really send: prose
// around the code, several blocks, reasoning in tags, a reply that was cut off.
//
// What counts as the answer, in this order:
//   1. reasoning is dropped: <think>…</think> and <thinking>…</thinking>, everything before a lone closing
//   tag
//      (chat templates may write the opening one), everything after a lone opening tag;
//   2. the last whole block that calls or defines `launch`; for kind `cuda` first among those marked cuda or
//      cu, for `ptx` among those marked ptx;
//   3. the last whole block in the kind's language (for `cuda` any name of C++) or no stated language;
//   4. with no fence at all, a reply that is nothing but a file of that kind with `launch`.
// A block is whole when its fence is closed, or when the reply ends inside it and the code ends where a file
// may end: braces and brackets balance and the last token is `}` or `;`. A cut-off block that is not whole is
// never used: half a kernel wastes a turn and would teach the wrong lesson.
//
// Fences follow CommonMark (``` or ~~~, three or more, any indentation, which is taken off the code) with
// three liberties: a fence may close at the end of a line of code, open at the end of a line of prose if it
// names a language, and a line that opens a block closes one left open. Pure; safe from any thread.

#include <optional>
#include <string>
#include <string_view>

namespace kevin {

// Stored with every turn; changes whenever some reply could be read differently.
inline constexpr int kParserVersion = 2;

inline constexpr size_t kMaxSourceBytes = 512 * 1024;
inline constexpr size_t kMaxSummaryBytes = 600;

struct ParsedReply {
  std::optional<std::string> source;  // \n line ends, ends with a line end
  std::string failure;                // why there is no source; empty when there is
  std::string summary;                // the model's own words about it: prose after the code, else before it
  bool truncated_fence = false;       // the block was not closed but looked whole
};

// `kind`: of the candidate that was asked for, "cpp", "cuda" or "ptx".
ParsedReply ParseReply(std::string_view reply, const std::string& kind = "cpp");

// The first sentence of a summary, on one line, at most `max_bytes` long; for tables.
std::string FirstSentence(std::string_view text, size_t max_bytes = 80);

}  // namespace kevin
