#pragma once
// Feedback about a GPU candidate beyond its outcome: the time and the resources of its kernels. Also KernelReport (one
// launch of a candidate) as JSON, as the store keeps it, and as a line. Pure; any thread.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

// One line per distinct kernel, at most kMaxKernelsShown; then advice on register spills, the choices of
// Triton's autotuner and the profiler's findings, if there are any. With the times of a diagnosis (may be null) the slowest come first, each with its share.
// No line end at the end; empty when nothing is known.
inline constexpr size_t kMaxKernelsShown = 4;
std::string KernelNotes(const Evaluation& evaluation, const Diagnosis* diagnosis = nullptr);

// "relu<4> <<<132 x 1 x 1, 256 x 1 x 1>>>: 40 registers, 16 KB shared memory, occupancy 50 % (limited by
// registers)", with the bytes spilled, if any. No line end.
std::string KernelLine(const KernelReport& kernel);

// A list of objects with KernelReport's fields; `occupancy` is a share from 0 to 1.
nlohmann::ordered_json KernelsJson(const std::vector<KernelReport>& kernels);

// KernelsJson as text for the store; empty for no kernels. Text that cannot be parsed gives no kernels.
std::string KernelsText(const std::vector<KernelReport>& kernels);
std::vector<KernelReport> KernelsFromText(const std::string& text);

}  // namespace kevin
