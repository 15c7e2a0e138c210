#pragma once
// PTX as tokens, so that nothing can hide in a comment or a string. Texts on which the assembler and this
// reader might disagree (a backslash in a string, a preprocessor line, a stray byte) are refused, not
// guessed.

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

enum class PtxTokenKind { kWord, kNumber, kString, kPunctuation };

struct PtxToken {
  PtxTokenKind kind = PtxTokenKind::kPunctuation;
  // A word keeps its dots and its first % or $: "ld.global.f32", ".reg", "%tid.x", "$L__BB0_2". A string has
  // no quotes.
  std::string_view text;  // into the PTX
  int line = 0;
};

struct PtxTokens {
  std::vector<PtxToken> tokens;
  std::string refused;  // empty, or what cannot be read, and where
};

// `ptx` must outlive the tokens.
PtxTokens TokenizePtx(std::string_view ptx);

}  // namespace kevin
