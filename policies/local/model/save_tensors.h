#pragma once
// From tensors to weight files.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "policies/local/files/safetensors.h"

namespace kevin::local {

NumberType NumberTypeOf(at::ScalarType type);

// In the order of their names, or in that of `order` where it is given; one tensor at a time is copied to the
// host. Throws as WriteTensors.
void SaveTensors(const std::filesystem::path& folder, const std::map<std::string, at::Tensor>& tensors,
                 const WriteOptions& options = {}, const std::vector<std::string>& order = {});

}  // namespace kevin::local
