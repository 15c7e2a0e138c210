#pragma once
// Headers that models include by habit and that a device-only compiler does not have: the C and C++ standard
// library, the CUDA run-time, torch. They are served from memory, as small as what kernels use of them
// (fixed-width integers, FLT_MAX, std::min, ...) or empty.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace kevin {

// Included before every candidate: nvcc gives these names without any #include, so texts count on them.
inline constexpr const char* kBasicsHeader = "kevin/basics.h";

struct HabitHeaders {
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  std::vector<std::string> notes;                            // for the policy
};

// The headers for `text`: the fixed ones, and an empty one for each name of host code that it includes,
// unless one of `folders` has that file.
HabitHeaders HeadersFor(const std::string& text, const std::vector<std::filesystem::path>& folders);

// CCCL's barriers read %globaltimer to back off while they wait, which no candidate may: these are its
// headers with a clock that stands still, so that they wait without a pause. Empty when the toolchain has no
// such read.
std::vector<std::pair<std::string, std::string>> HeadersWithoutClock(
    const std::vector<std::filesystem::path>& includes);

// The names that `text` includes, in order; what comments and #if hide is listed too.
std::vector<std::string> IncludedNames(const std::string& text);

}  // namespace kevin
