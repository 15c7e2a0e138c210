#pragma once
// `kevin bench --sass, --sanitize, --debug`: what NVIDIA's tools say about a GPU candidate, beside its
// verdict.

#include <string>

#include "agent/events.h"
#include "env/gpu/gpu_environment.h"

namespace CLI {
class App;
}

namespace kevin {

struct ExamineChoice {
  bool sass = false, sanitize = false, debug = false;
  bool any() const { return sass || sanitize || debug; }
};

void AddExamineOptions(CLI::App* command, ExamineChoice* choice);

// Throws Error(kBadRequest) when something is chosen and the environment is no GPU's.
void RequireGpuFor(const ExamineChoice& choice, Environment& environment);

// Runs what was chosen, at `size` ("small" when it is empty). Throws as RequireGpuFor does, and
// Error(kMachine) when a tool is not there.
Examination Examine(Environment& environment, const Problem& problem, const Candidate& candidate,
                    const ExamineChoice& choice, const std::string& size, const std::string& inputs);

std::string ExaminationText(const Examination& examination, const ExamineChoice& choice);
// The event `examination`; what was not chosen is null.
Json ExaminationEvent(const Examination& examination, const ExamineChoice& choice, const std::string& problem,
                      const std::string& source_path);

}  // namespace kevin
