#pragma once
// What a model's folder says beside its weights: tokenizer, chat template, how it is meant to be sampled.

#include <filesystem>

#include "policies/local/serve/served_model.h"

namespace kevin::local {

// A folder without a chat template serves completions only. Throws Error(kBadRequest) that names the file.
ServedModel ReadFolderModel(const std::filesystem::path& model_folder);

}  // namespace kevin::local
