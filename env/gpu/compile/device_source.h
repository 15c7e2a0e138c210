#pragma once
// From the device text of a candidate to the text and the headers that NVRTC compiles.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "env/problem/expression.h"

namespace kevin {

struct DeviceSource {
  std::string text;
  bool precompiled = false;  // begins with headers worth precompiling (NVRTC's -pch), up to nv_hdrstop
};

// Expensive headers of the text come first, in a fixed order, so that NVRTC finds them among its precompiled
// ones. Then come the basics, the symbols as `constexpr long`, and the text, with its own line numbers.
DeviceSource BuildDeviceSource(const std::string& device_text, const Symbols& symbols);

// Sets of headers to precompile in an idle compiler, the most frequent first; each is a complete text.
const std::vector<std::string>& WarmUpTexts();

// The names of the functions declared `__global__`, templates included, in the order of the text.
std::vector<std::string> KernelsIn(const std::string& device_text);

// Compatibility headers: headers that candidates include and that a device-only compiler lacks, of the C and
// C++ standard library, the CUDA run-time and torch. They are served from memory and hold only what kernels
// use of them (fixed-width integers, FLT_MAX, std::min, ...), or nothing. Their texts are in
// compatibility_headers.cc.

// Included before every candidate: nvcc provides these names without an #include, so candidates rely on them.
inline constexpr const char* kBasicsHeader = "kevin/basics.h";

// Launches that begin before the launch before them has ended.
inline constexpr const char* kDependencyHeader = "kevin/launch_dependency.h";

struct CompatibilityHeaders {
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  std::vector<std::string> notes;                            // for the policy
};

// The headers for `text`: the fixed ones, and an empty one for each host header that it includes, unless one
// of `folders` has that file.
CompatibilityHeaders HeadersFor(const std::string& text, const std::vector<std::filesystem::path>& folders);

// The barriers of CCCL read %globaltimer to back off while they wait, which no candidate may do. These are
// its headers with a constant clock, so that they wait without a pause. Empty when the headers of the
// toolchain do not read it.
std::vector<std::pair<std::string, std::string>> HeadersWithoutClock(
    const std::vector<std::filesystem::path>& includes);

// The names that `text` includes, in order, those inside comments and #if too.
std::vector<std::string> IncludedNames(const std::string& text);

// Headers that are always served from memory.
inline constexpr const char* kBasicsOnly = "#include <kevin/basics.h>\n";

const std::vector<std::pair<std::string, std::string>>& FixedHeaders();  // name, text

}  // namespace kevin
