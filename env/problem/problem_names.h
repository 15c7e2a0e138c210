#pragma once
// What a tensor or a size symbol of a problem may be called: it is in scope in C++ and in TorchScript.
// Internal to the problem loader.

#include <string>
#include <string_view>

namespace kevin {

// Why `name` cannot name a tensor or a size; empty when it can.
std::string WhyNoName(std::string_view name);

}  // namespace kevin
