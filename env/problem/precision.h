#pragma once
// The floating type in which a problem is asked (--precision): all its floating inputs, parameters and
// outputs are of that type, whole numbers stay what they are. Inputs are drawn as for float32 and rounded;
// the fp64 truth is that of the rounded inputs; the reference is eager libtorch in that type. Pure.

#include <span>
#include <string>

#include "env/problem/problem.h"

namespace kevin {

enum class Precision { kFp32, kFp16, kBf16 };

const char* PrecisionName(Precision precision);  // "fp32", "fp16", "bf16"
// Throws Error(kBadRequest) for any other name.
Precision PrecisionNamed(const std::string& name);
DType DTypeOf(Precision precision);
bool IsFloating(DType dtype);

// Of the first floating tensor, inputs first; kFp32 where there is none.
Precision PrecisionOf(const Problem& problem);

// The problem with every float32 tensor of that type, and with `bytes` and `min_bytes` to match. Text and
// hash stay the file's. A problem whose file itself declares other floating types keeps those.
Problem InPrecision(Problem problem, Precision precision);

// The flags of a problem file for which it does not count in this precision (wrong answers pass on it, or
// right ones fail): `inadmissible`, and in 16 bits also `inadmissible-in-16-bits`.
std::span<const char* const> FlagsAgainst(Precision precision);

// What rounding to the type costs: at most Roundoff times the value, and at most half of SmallestStep where
// the value is too small for that. 0 for whole numbers; of SmallestStep also for float32, whose answers are
// not rounded apart from their arithmetic.
double Roundoff(DType dtype);
double SmallestStep(DType dtype);
double LargestFinite(DType dtype);

}  // namespace kevin
