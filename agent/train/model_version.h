#pragma once
// The name under which the turns of a model in training are stored: NAME@STEPS, with the steps that it had
// learnt when it began to answer. Pure.

#include <cstdint>
#include <optional>
#include <string>

namespace kevin {

std::string VersionedModel(const std::string& name, int64_t steps);
std::optional<int64_t> VersionOfModel(const std::string& stored);  // nullopt: it has none

}  // namespace kevin
