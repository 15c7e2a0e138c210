#pragma once
// Which kernels of a GPU candidate in Python are its own: those that its text defines, in CUDA C++ or in Triton. Their share
// of the device time of a call is what the rules `kevin` ask for. Pure functions; any thread.

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kevin {

// The names that the text gives its kernels: after `__global__`, and of functions under @triton.jit.
std::set<std::string> OwnKernelNames(const std::string& source);

// Whether a kernel, by the name that a profiler gives ("void relu<4>(float const*, float*)"), has one of these names. A name
// in a namespace of torch or of NVIDIA's libraries is never own.
bool IsOwnKernel(const std::string& name, const std::set<std::string>& own);

// Of device time, for kernels with their microseconds; copies and settings of memory count as not own. Unknown where there is
// no time.
std::optional<double> OwnKernelShare(const std::vector<std::pair<std::string, double>>& kernels,
                                     const std::set<std::string>& own);

}  // namespace kevin
