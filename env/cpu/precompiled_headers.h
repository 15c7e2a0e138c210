#pragma once
// Standard headers in precompiled form. Most of a compile of a small kernel is spent on reading them: with <immintrin.h> and
// <cmath> 0.36 s of g++ 12, from the precompiled form 0.08 s. What is loaded of a candidate's library is the same, byte for
// byte; its line table has another order. For g++ alone.

#include <filesystem>
#include <string>
#include <vector>

#include "env/cpu/compile.h"

namespace kevin {

// Of the headers that a text includes before anything but comments, those that are worth it, in a fixed order. What is included
// later, or after a macro, is read as usual.
std::vector<std::string> HeadersWorthPrecompiling(const std::string& source);

// The folder with the file kHeadersName of these headers and its precompiled form, which a compiler must see; `-include` of the
// file uses it. Empty: there is none. They are made, which takes as long as two compiles, at the second request of a process
// for the same headers: by one thread, while others go on without. No precompiled headers are a permanent failure: they are
// not asked for again. The caller holds the lock of the CPU. Throws Error(kInterrupted) as CompileCpp does.
std::filesystem::path PrecompiledHeaders(const Compiler& compiler, const std::vector<std::string>& headers,
                                         const CompileOptions& options);

inline constexpr const char* kHeadersName = "headers.h";

}  // namespace kevin
