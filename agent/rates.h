#pragma once
// A measured kernel's times and rates in words, against the machine's measured ceilings (env/ceilings.h). Pure; any
// thread.

#include <string>

#include "env/ceilings.h"
#include "env/environment.h"

namespace kevin {

enum class Ceiling { kMemory, kArithmetic, kUnknown };

// Achieved bandwidth and arithmetic, by the problem's usual counts, as shares of the ceilings; 0 where one is unknown.
struct Roofline {
  double memory = 0, arithmetic = 0;
  Ceiling nearer = Ceiling::kUnknown;  // the larger share; kUnknown when both are 0
  double share() const { return memory > arithmetic ? memory : arithmetic; }
};
Roofline RooflineOf(const Measured& measured, const Evaluation& evaluation);

inline constexpr double kNearCeiling = 0.8;  // share from which only less work helps

// Times, rates, shares of the ceilings, and why the times do not have the ratio of the speed-up, if so. One line.
std::string RateText(const Measured& measured, const Evaluation& evaluation);

// What can still help near a ceiling, and by what factor; empty elsewhere. Of float32 products on a GPU that of tensor cores
// with split inputs counts where it is the higher one (env/ceilings.h). `problem` may be null.
std::string CeilingAdvice(const Measured& measured, const Evaluation& evaluation,
                          const SizedProblem* problem);

// "split into 2 such parts", and for fp16 what its range asks for.
std::string SplitText(const SplitCeiling& split);

// "62 %", "0.4 %", "100 %"
std::string PercentText(double share);

}  // namespace kevin
