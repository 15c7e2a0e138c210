#pragma once
// The tokens of the model in training, and the name under which its turns are stored.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trajectories/records.h"

namespace kevin {

struct ModelText {
  std::string model;           // for messages: the folder
  int vocabulary = 0;          // ids are below it; 0: unknown
  std::string tokenizer_hash;  // empty: unknown
  // The text of a token list, without special tokens if asked. Empty: recorded ids are not compared with the recorded reply.
  std::function<std::string(std::span<const int32_t> ids, bool skip_special)> decode;
  // For records without token ids (imitation and preferences only). Empty: such turns are left out.
  std::function<std::vector<int32_t>(const std::vector<MessageRecord>& messages)> encode_prompt;
  std::function<std::vector<int32_t>(const std::string& reasoning, const std::string& reply)> encode_reply;
};

// From a model folder's config.json, tokenizer.json and chat template. Without a tokenizer, all functions are
// empty. Throws Error(kBadRequest) when the folder holds no model.
ModelText LoadModelText(const std::string& folder);

// The policy under which the run in folder `output` stores the episodes that it makes itself.
std::string PolicyNameOfRun(const std::string& output);

// The turns of a model in training are stored under NAME@STEPS, with the steps that it had learnt before it
// answered.
std::string VersionedModel(const std::string& name, int64_t steps);
std::optional<int64_t> VersionOfModel(const std::string& stored);  // nullopt: a name without steps

}  // namespace kevin
