#pragma once
// `kevin bench --sass`, `--sanitize` and `--debug`: NVIDIA's tools on a GPU candidate, beside its verdict.

#include <string>

#include "agent/json.h"
#include "env/gpu/gpu_environment.h"

namespace CLI {
class App;
}

namespace kevin {

struct ExamineChoice {
  bool sass = false, sanitize = false, debug = false;
  bool any() const { return sass || sanitize || debug; }
};

// `choice` must live as long as `command`.
void AddExamineOptions(CLI::App* command, ExamineChoice* choice);

// Throws Error(kBadRequest) where something is chosen and the environment is no GPU's.
void RequireGpuFor(const ExamineChoice& choice, Environment& environment);

// `size`: empty for the default.
Examination Examine(Environment& environment, const Problem& problem, const Candidate& candidate,
                    const ExamineChoice& choice, const std::string& size, const std::string& inputs);

std::string ExaminationText(const Examination& examination, const ExamineChoice& choice);
Json ExaminationEvent(const Examination& examination, const ExamineChoice& choice, const std::string& problem,
                      const std::string& source_path);

}  // namespace kevin
