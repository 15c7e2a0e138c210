#pragma once
// How a model's folder becomes a ModelRunner. No torch here; its implementation knows torch.

#include <functional>
#include <memory>
#include <string>

#include "policies/local/generate/model_runner.h"
#include "policies/local/serve/program_options.h"

namespace kevin::local {

struct MadeRunner {
  std::unique_ptr<ModelRunner> runner;
  std::string device;  // "cpu", "cuda:0"
};

// `say` gets lines for a person: the memory plan, how far loading is. Throws Error: kBadRequest for a folder
// or option that will not do, kMachine when it does not fit.
using RunnerMaker =
    std::function<MadeRunner(const RunnerOptions&, const std::function<void(const std::string&)>& say)>;

}  // namespace kevin::local
