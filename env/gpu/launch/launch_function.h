#pragma once
// START HERE for launching. The `launch` function of a GPU candidate: found in its text, parsed, and interpreted with
// known shapes. It reads like host code, but it can only compute and name what is to be launched. Everything else is
// an error that says what to write instead. Pure and thread-safe; no CUDA.
//
// Accepted: the statements of C++; integer, bool and floating arithmetic (signed overflow is an error); dim3;
// local arrays of numbers; lambdas; macros; conditionals; constants, enums and namespaces of the text; other
// functions of the text that are not device-only (templates too). And:
//
//   B, N, ...            the size symbols of the problem, as `long` constants; in #if too
//   weight_offset, ...   the offset of each parameter in a block of parameters (env/problem/problem.h)
//
//   kernel<T, 256><<<grid, block[, shared bytes[, stream]]>>>(arguments...)
//                        further items in any order: cluster(x[, y[, z]]), cooperative(), programmatic()
//
//   workspace<T>(count)  a T* to scratch memory of this call; T is a scalar or vector type of CUDA
//   workspace<T>(count, zeroed), zeroed_workspace<T>(count)
//                        the same, zeroed at this point
//
//   tensor_map<T>(base, {sizes, innermost first}, {stride in bytes of dimensions 1 and up}, {box}
//                 [, swizzle: 0, 32, 64, 128 or CU_TENSOR_MAP_SWIZZLE_... [, L2 promotion [, NaN fill]]])
//                        for a `const __grid_constant__ CUtensorMap` parameter; T is float, __half,
//                        __nv_bfloat16, int or unsigned char
//
//   constant(symbol, {values})
//                        the initial values of a __constant__ variable
//
//   ceil_div(a, b), cdiv(a, b), div_up(a, b)
//                        the quotient, rounded up
//   round_up(a, b)       the next multiple of b
//   next_power_of_2(n), min, max, abs, sqrt, rsqrt, exp, log, pow, ...
//                        also with std:: and a trailing f
//
//   pointer + elements, &pointer[i], casts between pointer types
//                        checked when a kernel gets the address
//
// CUDA run-time calls with a meaning: cudaMemset(Async), cudaMemcpy(Async) within the device,
// cudaMemcpyToSymbol(Async), cudaLaunchKernel(Ex), cudaLaunchCooperativeKernel, assert. Accepted with a note,
// and without effect: `extern "C"`, a stream parameter or argument, cudaFuncSetAttribute, cudaGetLastError,
// synchronisation.
//
// A text of kind `ptx` holds the same function, constants and macros among its PTX directives.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "env/gpu/launch/launch_list.h"
#include "env/problem/problem.h"

namespace kevin {

// An error for the author of the text: "line 12, column 5: ...; write ... instead", then the line itself and
// a caret, each on a line of its own.
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
  std::string host_text;           // the blanked parts; the rest is blank
  std::vector<std::string> notes;  // on accepted items without effect: "line 3: `extern \"C\"` is not needed"
};

struct LaunchFunctionLimits {
  int64_t steps = 1'000'000;                    // evaluated expressions and statements
  int64_t operations = 16384;                   // of the list; as many workspaces
  int64_t workspace_bytes = int64_t{16} << 30;  // all workspaces together
};

struct InterpretedLaunch {
  SplitCandidate split;
  LaunchList list;
  std::set<std::string> kernels;  // the name expressions that the compiler must provide
};

// Reads the text of a candidate of kind `cuda` or `ptx` for the problem at its size and interprets its launch
// function. Throws LaunchException for an error of the candidate, Error(kBroken) for other kinds.
InterpretedLaunch InterpretLaunch(const SizedProblem& problem, const std::string& kind,
                                  const std::string& text, const LaunchFunctionLimits& limits = {});

}  // namespace kevin
