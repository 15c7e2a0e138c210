#pragma once
// A policy's reply -> the candidate's source, or the reason why there is none. Replies of language models
// hold prose around the code, several blocks, reasoning in tags, and may be cut off. Pure; any thread.
//
// The answer is, in this order:
//   1. Reasoning is dropped (agent/reply_text.h): <think>…</think> and the like; everything before a closing
//      tag without an opening one; everything after an opening tag that is never closed. So are characters
//      that nobody sees.
//   2. For the kinds in Python the last closed block with `class ModelNew` (`def launch`). Else the last complete
//      block that defines `launch`, whatever its mark; else the last one that calls it. For kind `cuda` blocks
//      marked cuda or cu come first, for `ptx` those marked ptx, for `cpp` those without CUDA kernels. Where it
//      uses functions that only an earlier kernel has, its functions take the place of those (agent/edits.h).
//      Code of another kind is a failure that says what to write instead.
//   3. All diffs of the reply, applied to an earlier kernel. A whole kernel that is marked as a diff is one of
//      point 2.
//   4. The last complete block that is in no other language: functions of an earlier kernel, or a file without
//      `launch`.
//   5. Without any fence: a file that defines `launch`, perhaps with prose before and after it.
// A block is complete when its fence is closed, or when the reply ends inside it and the code may end there:
// brackets balance and the last token is `}` or `;`. Other cut-off blocks are never used: half a kernel
// wastes a turn and would be a bad training sample.
//
// Fences follow CommonMark (``` or ~~~, three or more, any indentation, which is removed from the code) with
// three additions: a fence may close at the end of a line of code; it may open at the end of a line of prose
// if it names a language; a line that opens a block closes a block that is still open. A fence in a string or a
// comment of the code opens and closes nothing. Time and memory are linear in the reply.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "agent/reply_failure.h"

namespace kevin {

// Stored with every turn; increased whenever some reply could be read differently.
inline constexpr int kParserVersion = 4;

inline constexpr size_t kMaxSourceBytes = 512 * 1024;
inline constexpr size_t kMaxSummaryBytes = 600;
inline constexpr size_t kMaxReplyBytes = size_t{4} << 20;  // longer ones are not read
inline constexpr size_t kMaxUnreadBytes = 900;

struct ParsedReply {
  std::optional<std::string> source;  // \n line ends, ends with a line end
  // How the reply held the source: "whole" (a block), "file" (without a fence), "diff", "function". Empty: no source.
  std::string form = {};
  std::string failure;      // why there is no source; empty when there is one
  std::string advice = {};  // with a failure: a sentence on what to do instead; may be empty
  std::string unread = {};  // with a failure: the answer, shortened, without control characters and reasoning
  std::string summary;      // the model's description: prose after the code, else before it
  bool truncated_fence = false;  // the block was not closed but complete
  // With a source: what of the reply was left out of it, in sentences for the policy; empty: nothing of interest.
  std::string note = {};
};

// `kind`: of the candidate asked for, "cpp", "cuda", "ptx" or "modelnew". `bases`: earlier kernels that a diff or single functions
// may refer to, the most probable first.
ParsedReply ParseReply(std::string_view reply, const std::string& kind = "cpp",
                       std::span<const std::string> bases = {}, const ReplyFacts& facts = {});

// The mark of the fenced block of a kind: "python" for the kinds in Python, else the kind.
std::string FenceOf(const std::string& kind);

// A kernel's source file. Throws Error(kBadRequest) when it cannot be read, is empty or is larger than 512
// KiB.
std::string ReadSourceFile(const std::filesystem::path& path);

}  // namespace kevin
