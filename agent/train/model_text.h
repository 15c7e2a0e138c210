#pragma once
// What making batches needs to know of the model that is trained: its tokens. Filled by whoever loads its
// tokenizer and chat template.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trajectories/records.h"

namespace kevin {

struct ModelText {
  std::string model;           // for messages: the folder
  int vocabulary = 0;          // ids are below it; 0: unknown
  std::string tokenizer_hash;  // empty: unknown
  // What a token list reads as; empty: it is not checked that recorded ids spell the recorded reply.
  std::function<std::string(std::span<const int32_t> ids)> decode;
  // For records without token ids (imitation and preferences only). Empty: such turns are left out.
  std::function<std::vector<int32_t>(const std::vector<MessageRecord>& messages)> encode_prompt;
  std::function<std::vector<int32_t>(const std::string& reasoning, const std::string& reply)> encode_reply;
};

}  // namespace kevin
