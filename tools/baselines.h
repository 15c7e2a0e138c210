#pragma once
// The baseline beside eager: the time of torch.compile for a problem, looked up (or measured) and reported by
// `run` and `bench`. A speed-up against it is that against eager, scaled by the ratio of the two in one Python
// process.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agent/terminal.h"
#include "env/environment.h"
#include "env/python/baseline_store.h"
#include "env/python/torch_compile.h"
#include "tools/device_options.h"

namespace CLI {
class App;
}

namespace kevin {

// --baseline stored|compile.
void AddBaselineOption(CLI::App* command, std::string* option);

// The problem and conditions of a baseline. The problem must outlive it.
struct BaselineQuestion {
  const Problem* problem = nullptr;
  std::string size;
  bool tf32 = false;
  std::string mode = "default";  // of torch.compile
};

// A measurement takes seconds to minutes: it shows its phases and can be interrupted.
struct BaselineWork {
  Progress* progress = nullptr;
  const std::atomic<bool>* stop = nullptr;
};

// The baseline for the environment's device; of a size set with several shapes, for all of them together.
// Nothing on a CPU. Where none is stored: nothing if `option` is "stored"; "compile" measures and stores it.
// Throws as MeasureTorchCompile does.
std::optional<Baseline> BaselineFor(const BaselineQuestion& question, const EnvironmentFacts& facts,
                                    const std::string& option, const BaselineWork& work,
                                    const GpuFinder& find_gpus = FindGpus);

// One baseline for a size set with several shapes: geometric means of the times with the shapes' weights, as for
// speed-ups (env/verdict/shapes.h), or the first failure. `of_shapes` is not empty.
struct ShapeBaseline {
  Baseline baseline;
  double weight = 1;
};
Baseline Together(const std::vector<ShapeBaseline>& of_shapes, const std::string& size);

// Measures, showing the phases as "LABEL  torch.compile: compile", and stores the result. Throws as
// MeasureTorchCompile does.
Baseline MeasureBaseline(const BaselineQuestion& question, const GpuFound& gpu, const PythonTorch& python,
                         const std::string& label, const BaselineWork& work);

// For a report's first line, after its facts: "; torch.compile 2.11: 1.2x over eager", "; torch.compile: not
// measured (kevin baseline --problem level1/19)", or why there is none. "" on a CPU.
std::string BaselineNote(const std::optional<Baseline>& baseline, const Problem& problem,
                         const EnvironmentFacts& facts);

// A speed-up over eager as one over torch.compile; nothing when that is unknown.
std::optional<double> OverBaseline(const std::optional<Baseline>& baseline, double speedup);

// ", 1.05x over torch.compile 2.11", to follow a speed-up over eager; "" unless torch.compile is known to be
// faster than eager.
std::string OverBaselineText(const std::optional<Baseline>& baseline, double speedup);

// Adds `baseline`, `baseline_us` and `speedup_over_baseline` to an event whose speed-up is in
// `speedup_field`.
void AddBaselineFields(const std::optional<Baseline>& baseline, const char* speedup_field,
                       nlohmann::ordered_json* event);

// A table of the stored baselines of a problem, under a heading; "" when there are none.
std::string StoredBaselinesText(const Problem& problem);

// The `baseline` event.
nlohmann::ordered_json BaselineEvent(const Baseline& baseline);

// Columns of a table with a baseline a row; kBaselineHeading names them.
extern const std::vector<std::string> kBaselineHeading;
std::vector<std::string> BaselineRow(const Baseline& baseline);

}  // namespace kevin
