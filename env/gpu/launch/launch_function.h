#pragma once
// The `launch` function of a GPU candidate: found in its text, parsed, and interpreted with the shapes known.
// It reads like host code and can do nothing but arithmetic and naming what is to be launched; everything
// else is an error that says what to write instead. Pure and thread-safe; no CUDA.
//
// What it may contain, beyond C++'s statements and integer, bool and floating arithmetic (signed overflow is
// an error), dim3, local arrays of numbers, lambdas, macros, conditionals, the text's constants, enums and
// namespaces, and other functions of the text that are not for the device alone (templates too):
//
//   B, N, ...                         the problem's size symbols, as `long` constants; in #if too
//   weight_offset, ...                likewise where each parameter lies in a block of them (env/problem/problem.h)
//   kernel<T, 256><<<grid, block[, shared bytes[, stream]]>>>(arguments...)
//     ... further items in any order: cluster(x[, y[, z]]), cooperative(), programmatic()
//   workspace<T>(count)               a T* to scratch memory of this call; T is any of CUDA's scalars or
//   vectors workspace<T>(count, zeroed)       the same, zeroed at this point; also zeroed_workspace<T>(count)
//   tensor_map<T>(base, {sizes, innermost first}, {stride in bytes of dimensions 1 and up}, {box}
//                 [, swizzle: 0, 32, 64, 128 or CU_TENSOR_MAP_SWIZZLE_... [, L2 promotion [, NaN fill]]])
//                                     for a `const __grid_constant__ CUtensorMap` parameter; T is float,
//                                     __half,
//                                     __nv_bfloat16, int or unsigned char
//   constant(symbol, {values})        what a __constant__ variable holds from the start
//   ceil_div, cdiv, div_up (a, b)     the quotient rounded up, as round_up(a, b) is a multiple of b
//   next_power_of_2(n), min, max, abs, sqrt, rsqrt, exp, log, pow, ... also with std:: and a trailing f
//   pointer + elements, &pointer[i], casts between pointer types: checked when a kernel gets the address
//
// Habits with a meaning: cudaMemset(Async), cudaMemcpy(Async) within the device, cudaMemcpyToSymbol(Async),
// cudaLaunchKernel(Ex), cudaLaunchCooperativeKernel, assert. Habits that only leave a note: `extern "C"`, a
// stream parameter or argument, cudaFuncSetAttribute, cudaGetLastError, synchronisation.
//
// A text of kind `ptx` holds the same function, constants and macros among its PTX directives.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "env/gpu/launch/launch_list.h"
#include "env/problem/problem.h"

namespace kevin {

// What is wrong, for the policy: "line 12, column 5: ...; write ... instead", then the line itself and a
// caret, each on a line of its own.
struct LaunchError {
  int line = 0, column = 0;  // from 1; columns count bytes
  std::string message;       // all of it, positions included
};

class LaunchException {
 public:
  explicit LaunchException(LaunchError error) : error_(std::move(error)) {}
  const LaunchError& error() const { return error_; }

 private:
  LaunchError error_;
};

// A candidate's text in two parts. Both keep the lines of the text, so that messages point into it.
struct SplitCandidate {
  std::string device_text;         // for the device compiler: launch and host-only helpers are blanked
  std::string host_text;           // what the device compiler does not get; the rest is blank
  std::vector<std::string> notes;  // habits that were let pass: "line 3: `extern \"C\"` is not needed"
};

struct LaunchFunctionLimits {
  int64_t steps = 1'000'000;                    // evaluated expressions and statements
  int64_t operations = 4096;                    // of the list; as many workspaces
  int64_t workspace_bytes = int64_t{16} << 30;  // all workspaces together
};

struct InterpretedLaunch {
  SplitCandidate split;
  LaunchList list;
  std::set<std::string> kernels;  // the name expressions that the compiler must provide
};

// Reads the text of a candidate of kind `cuda` or `ptx` for the problem at its size and interprets its launch
// function. Throws LaunchException where the candidate is wrong, Error(kBroken) for other kinds.
InterpretedLaunch InterpretLaunch(const SizedProblem& problem, const std::string& kind,
                                  const std::string& text, const LaunchFunctionLimits& limits = {});

}  // namespace kevin
