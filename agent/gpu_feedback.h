#pragma once
// What a policy is told about a GPU candidate beyond its outcome: how near it came to the device's two
// ceilings (the roofline, by the device's own measured peaks), what its kernels are made of, and what to do
// next. Pure.

#include <string>

#include "env/environment.h"

namespace kevin {

enum class Ceiling { kMemory, kArithmetic, kUnknown };

// The shares of the device's peaks that the usual counts of bytes and flops come to; 0 where unknown.
struct Roofline {
  double memory = 0, arithmetic = 0;
  Ceiling nearer = Ceiling::kUnknown;  // kUnknown when no share is known
};
Roofline RooflineOf(const Measured& measured, const Evaluation& evaluation);

// One line: time, rates, shares of the peaks, distance from the floor.
std::string GpuRates(const Measured& measured, const Evaluation& evaluation);

// One line: the next thing to try.
std::string GpuAdvice(const Measured& measured, const Evaluation& evaluation);

// Lines about the kernels, at most kMaxKernelsShown of them, spills with what to do, and the profile's
// sentences. Empty when nothing is known; else ends without a line end.
inline constexpr size_t kMaxKernelsShown = 4;
std::string KernelNotes(const Evaluation& evaluation);

}  // namespace kevin
