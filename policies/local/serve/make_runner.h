#pragma once
// How a model's folder becomes a ModelRunner. No torch here; its implementation knows torch.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "policies/local/generate/model_runner.h"

namespace kevin::local {

struct RunnerOptions {
  std::filesystem::path folder;
  std::string device = "auto";    // "cpu", "cuda", "cuda:1"; auto: the first GPU, else the CPU
  std::string dtype = "auto";     // "bfloat16", "float16", "float32"; auto: as stored, and float32 on a CPU
  std::string quantize = "none";  // "int8", "nf4"
  int context_tokens = 0;         // the most that prompt and answer may have; 0: the model's, or what fits
};

struct MadeRunner {
  std::unique_ptr<ModelRunner> runner;
  std::string device;  // "cpu", "cuda:0"
};

// `say` gets lines for a person: the memory plan, how far loading is. Throws Error: kBadRequest for a folder
// or option that will not do, kMachine when it does not fit.
using RunnerMaker =
    std::function<MadeRunner(const RunnerOptions&, const std::function<void(const std::string&)>& say)>;

}  // namespace kevin::local
