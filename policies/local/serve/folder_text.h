#pragma once
// The tokenizer and chat template of a model's folder.

#include <filesystem>
#include <memory>

#include "policies/local/serve/served_model.h"

namespace kevin::local {

// A folder without a chat template serves completions only. Throws Error(kBadRequest) as Tokenizer::Load
// does.
std::shared_ptr<const ModelText> LoadFolderText(const std::filesystem::path& model_folder);

}  // namespace kevin::local
