#pragma once
// Why a reply holds no kernel, and what to do instead: texts for the policy. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/reply_blocks.h"
#include "agent/reply_text.h"

namespace kevin {

// What the server says of a reply beside its text.
struct ReplyFacts {
  std::string_view reasoning = {};  // that it gave apart from the text
  bool is_at_limit = false;         // it ended at the limit of tokens
};

struct ReplyFailure {
  std::string reason;  // without a period
  std::string advice;  // sentences; may be empty
};

// The code launches CUDA kernels or defines them.
bool IsCudaCode(std::string_view code);
// The text has a PyTorch module or extension.
bool IsPyTorchModule(std::string_view text);

// Why code is no candidate of the kind, whatever its mark: kernels for a GPU where `cpp` is asked for, Python or
// Rust where C++ is, Python that does not define what its kind needs. nullopt: nothing speaks against it.
std::optional<ReplyFailure> WhyOtherKind(std::string_view code, const std::string& kind);

// Of a reply from which no kernel was taken. `answer`: what is left of it without reasoning; `blocks`: those of
// the answer.
ReplyFailure WhyNoSource(std::string_view reply, const ReplyFacts& facts, const ReplyAnswer& answer,
                         const std::vector<ReplyBlock>& blocks, const std::string& kind);

// What a reply has beside the block that was taken, if it looks like part of the kernel or another one. Empty:
// nothing.
std::string OtherBlocksNote(const std::vector<ReplyBlock>& blocks, const ReplyBlock& taken,
                            const std::string& kind);

}  // namespace kevin
