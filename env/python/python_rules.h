#pragma once
// What the text of a candidate in Python tells without running it. Pure functions; any thread.

#include <optional>
#include <string>

namespace kevin {

// What its kernels are written in: "triton", "tilelang", "cute", "cuda" or "cpp" (by torch.utils.cpp_extension); "torch"
// where it has none. By the code of the text, comments and strings apart; "triton" needs a kernel that something names besides
// its definition, "tilelang" and "cute" something that calls, decorates with or reads what is imported of `tilelang` or `cutlass`.
// On a CPU "triton" asks for the rules of interpreted kernels, and what runs there decides whether they count as its own
// (env/cpu/own_share.h).
std::string BackendOf(const std::string& source);

// The backend for the record, once it is known which kernels ran: "torch" where its own had a share of exactly 0. Kernels of
// "tilelang" and "cute" have names that the text does not tell (own_kernels.h), so 0 says nothing of them.
std::string BackendThatRan(const std::string& backend, std::optional<double> own_share);

// Whether its first calls need a process of their own, as far as names in its code tell: they compile, tune themselves or run
// programs (Triton, torch.compile, other compilers at run time), or capture graphs, which a recorder that comes and goes could
// break. A text that is built before its first call has none of these.
bool NeedsFirstCallsApart(const std::string& source);

// The default static check of KernelBench (validate_kernel_static of its kernel_static_checker.py at commit 423217d), for
// --rules kernelbench: empty, or a rule that refuses the text. It gives the answer of KernelBench's errors; warnings refuse
// nothing. Its backend, an argument there, is BackendOf's; a text without one, or of "cpp", is held against KernelBench's default,
// "cuda". Words count anywhere, in strings too, and comments end at the line: it knows nothing of what the text does. Time is
// linear in the text.
std::string KernelBenchRefusal(const std::string& source);

}  // namespace kevin
