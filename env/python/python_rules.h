#pragma once
// What the text of a candidate in Python tells without running it. Pure functions; any thread.

#include <string>

namespace kevin {

// What its kernels are written in: "triton", "tilelang", "cute", "cuda" or "cpp" (by torch.utils.cpp_extension); "torch"
// where it has none. By the code of the text, comments and strings apart; "triton" needs a kernel that something names besides
// its definition. For the record; on a CPU "triton" asks for the rules of interpreted kernels, and what runs there decides
// whether they count as its own (env/cpu/own_share.h).
std::string BackendOf(const std::string& source);

// Whether its first calls need a process of their own, as far as names in its code tell: they compile, tune themselves or run
// programs (Triton, torch.compile, other compilers at run time), or capture graphs, which a recorder that comes and goes could
// break. A text that is built before its first call has none of these.
bool NeedsFirstCallsApart(const std::string& source);

// The static rules of KernelBench (its kernel_static_checker.py at commit 423217d, those that are errors by default), for
// --rules kernelbench: empty, or which rule refuses the text. They know nothing of what the text does.
std::string KernelBenchRefusal(const std::string& source);

}  // namespace kevin
