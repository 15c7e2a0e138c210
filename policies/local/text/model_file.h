#pragma once
// Files of a model folder, which need not be trusted.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace kevin::local {

// The whole file. Throws Error(kBadRequest) where it is no file, cannot be read or has more than
// `most_bytes`.
std::string ReadModelFile(const std::filesystem::path& file, size_t most_bytes);

// Likewise; also where it is no JSON, with the line.
nlohmann::json ReadModelJson(const std::filesystem::path& file, size_t most_bytes);

}  // namespace kevin::local
