#pragma once
// The launches of a GPU candidate (KernelReport) as JSON and as lines for people and policies. Pure.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

// A list of objects whose fields are KernelReport's; `occupancy` is a share from 0 to 1.
nlohmann::ordered_json KernelsJson(const std::vector<KernelReport>& kernels);

// As the store keeps it: that list as text, empty for no kernels. Reading an empty or foreign text gives
// none.
std::string KernelsText(const std::vector<KernelReport>& kernels);
std::vector<KernelReport> KernelsFromText(const std::string& text);

// "relu<4> <<<132 x 1 x 1, 256 x 1 x 1>>>: 40 registers, 16 KB shared memory, occupancy 50 % (limited by
// registers)", with the bytes spilled, if any. No line end.
std::string KernelLine(const KernelReport& kernel);

}  // namespace kevin
