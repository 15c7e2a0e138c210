#pragma once
// The program `kevin-model`: loads a model's folder and serves it until it is told to end. No torch here: the loader is
// passed in (make_torch_runner.cc has the real one, tests have a fake), and so is the lock of its device (tools/model_main.cc).

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "policies/local/generate/model_runner.h"
#include "policies/local/serve/model_options.h"
#include "policies/local/serve/served_model.h"

namespace kevin::local {

struct MadeRunner {
  std::unique_ptr<ModelRunner> runner;
  std::string device;  // "cpu", "cuda:0"
};

// Loads the weights. `say` gets lines for the user: the memory plan, the progress of loading. Throws Error: kBadRequest
// for an unusable folder or option, kMachine when the model does not fit.
using RunnerMaker =
    std::function<MadeRunner(const RunnerOptions&, const std::function<void(const std::string&)>& say)>;

// The RunnerMaker for real models. Its source is the only file of this folder that includes torch.
MadeRunner MakeTorchRunner(const RunnerOptions& options, const std::function<void(const std::string&)>& say);

// Reads everything in the folder except the weights.
using ModelReader = std::function<ServedModel(const std::filesystem::path& folder)>;

// Waits until `device` ("auto" and "cuda" too) may be used, beside measurements of other programs on this machine, for as long
// as the result lives. Throws Error(kInterrupted) once *stop is set.
using DeviceHolder =
    std::function<std::shared_ptr<void>(const std::string& device, const std::atomic<bool>* stop)>;

// Serves until SIGINT or SIGTERM and returns 0; a signal during loading ends it at once with ExitCode::kInterrupted.
// Throws Error when the model fails. Progress goes to stderr, one line each.
//
// Nothing is loaded and no step is computed while a pair is timed on the device: it is held by `hold` (generate/quiet_runner.h)
// while `make` runs and in each step. With private_socket nothing is held: the only client is a program of Kevin's, which
// holds the device while it asks (Policy::ComputesOn), and would wait for itself.
int RunModelProgram(const ProgramOptions& options, const ModelReader& read, const RunnerMaker& make,
                    const DeviceHolder& hold);

}  // namespace kevin::local

namespace kevin {

// The main function of `kevin-model`: parses the command line, runs, prints an Error as `kevin` does, and returns the
// exit code.
int ModelMain(int argc, char** argv, const local::ModelReader& read, const local::RunnerMaker& make,
              const local::DeviceHolder& hold);

}  // namespace kevin
