#pragma once
// The tokens of a model's folder, as making batches needs them.

#include <string>

#include "agent/train/model_text.h"

namespace kevin {

// From config.json, tokenizer.json and the chat template. Without a tokenizer nothing can be made from text
// and recorded ids are not checked against their text. Throws Error(kBadRequest) for a folder that is no
// model's.
ModelText LoadModelText(const std::string& folder);

}  // namespace kevin
