#pragma once
// Which kernels of a GPU candidate in Python are its own: those that its text defines, in CUDA C++ or in Triton. Their share
// of the device time of a call is what the rules `kevin` ask for. Pure functions; any thread.

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kevin {

// A Python text in two parts.
struct PythonParts {
  std::string code;  // without comments and the contents of literals; each line keeps its number
  // Contents of string literals, decoded. Those that are statements by themselves (docstrings) are comments.
  std::vector<std::string> literals;
};
PythonParts SplitPythonText(const std::string& source);

// All literals, as C++ without its comments and strings.
std::string CudaTextOf(const PythonParts& text);
// Of functions under @triton.jit and the like.
std::set<std::string> TritonKernelNames(const PythonParts& text);

// The names that the text gives its kernels: after `__global__` in its literals, and those of Triton. Comments name none.
std::set<std::string> OwnKernelNames(const std::string& source);

// Whether a kernel, by the name that a profiler gives ("void relu<4>(float const*, float*)"), has one of these names. A name
// in a namespace of torch or of NVIDIA's libraries is never own, nor is one of the form that cuBLAS, cuDNN, CUTLASS, NCCL or
// Inductor give theirs: a text could define a kernel of such a name and never launch it.
bool IsOwnKernel(const std::string& name, const std::set<std::string>& own);

// Of device time, for kernels with their microseconds; copies and settings of memory count as not own. Unknown where there is
// no time.
std::optional<double> OwnKernelShare(const std::vector<std::pair<std::string, double>>& kernels,
                                     const std::set<std::string>& own);

// The others, the longest first: "ampere_sgemm_64x32 62 %, Memset (Device) 5 %", three at most, from 1 % of the device time
// on. Empty: there are none.
std::string NamesOfOthers(const std::vector<std::pair<std::string, double>>& kernels,
                          const std::set<std::string>& own);

}  // namespace kevin
