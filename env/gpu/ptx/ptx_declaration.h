#pragma once
// The declarations in PTX that matter from outside: kernel parameters and module variables.

#include <string>
#include <vector>

#include "env/gpu/ptx/inspect_ptx.h"
#include "env/gpu/ptx/ptx_tokens.h"

namespace kevin {

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

// "u64" -> 8; 0 for what is no type of a value (".texref").
int64_t PtxTypeBytes(std::string_view type);

// `( .param .u64 a, ... )`, the cursor at the parenthesis. False: not understood.
bool ReadPtxParameters(PtxCursor* cursor, std::vector<KernelParameter>* parameters);

// `.align 4 .f32 a[16], b = 1;` behind `.global` or `.const`; the cursor ends behind the semicolon. Returns
// empty, or what is refused.
std::string ReadPtxVariables(PtxCursor* cursor, bool constant, std::vector<GlobalVariable>* variables);

}  // namespace kevin
