#pragma once
// What `kevin bench` prints of the kernels that it judged.

#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/knobs/tune.h"
#include "env/problem/problem.h"
#include "tools/baselines.h"

namespace kevin {

struct Judged {
  std::string path;
  Evaluation evaluation;
  double total_s = 0;
  std::vector<KnobTrial> trials = {};  // of its knobs
  std::optional<Diagnosis> diagnosis = {};
};

// What limits the kernel; empty without a diagnosis.
std::string DiagnosisTextOf(const Judged& judged);

// On stdout: knobs, the table of outcomes, reasons, rates. `all`: the kernel, after the one to compare it with if there is
// one.
void PrintBenchReport(const std::vector<Judged>& all, const Problem& problem,
                      const std::optional<Baseline>& baseline, const EnvironmentFacts& facts);

}  // namespace kevin
