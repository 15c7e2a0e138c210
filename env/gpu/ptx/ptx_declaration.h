#pragma once
// PTX as tokens, and its declarations with external effect: kernel parameters and module variables.

#include <string>
#include <string_view>
#include <vector>

#include "env/gpu/ptx/inspect_ptx.h"

namespace kevin {

// Tokens: so that nothing can hide in a comment or a string. Texts on which the assembler and this reader
// might disagree (a backslash in a string, a preprocessor line, a stray byte) are refused.
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
  std::string refused;  // empty, or the unreadable part and its place
};

// `ptx` must outlive the tokens.
PtxTokens TokenizePtx(std::string_view ptx);

// A place in a list of tokens; reading past the end gives empty tokens.
class PtxCursor {
 public:
  explicit PtxCursor(const std::vector<PtxToken>& tokens) : tokens_(tokens) {}
  bool AtEnd() const { return at_ >= tokens_.size(); }
  const PtxToken& Peek(size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead] : end_;
  }
  bool Is(std::string_view text) const { return Peek().text == text; }
  PtxToken Take() {
    const PtxToken token = Peek();
    ++at_;
    return token;
  }
  bool TakeIf(std::string_view text) {
    if (!Is(text)) return false;
    ++at_;
    return true;
  }

 private:
  const std::vector<PtxToken>& tokens_;
  size_t at_ = 0;
  PtxToken end_;
};

// "u64" -> 8; 0 for types without values (".texref").
int64_t PtxTypeBytes(std::string_view type);

// `( .param .u64 a, ... )`, the cursor at the parenthesis. False: not understood.
bool ReadPtxParameters(PtxCursor* cursor, std::vector<KernelParameter>* parameters);

// `.align 4 .f32 a[16], b = 1;` after `.global` or `.const`; the cursor ends after the semicolon. Returns
// empty, or the reason of a refusal.
std::string ReadPtxVariables(PtxCursor* cursor, bool constant, std::vector<GlobalVariable>* variables);

}  // namespace kevin
