#pragma once
// The baseline beside eager: what torch.compile takes for the problem at hand, as `run` and `bench` look it
// up (or measure it) and say it. Speed-ups against it are those against eager, scaled by what one Python
// process measured of the two.

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

// What is asked of a baseline: the problem must outlive it.
struct BaselineQuestion {
  const Problem* problem = nullptr;
  std::string size;
  bool tf32 = false;
};

// Measuring takes a while: it shows its phases and can be interrupted.
struct BaselineWork {
  Progress* progress = nullptr;
  const std::atomic<bool>* stop = nullptr;
};

// For the device that an environment says it judges on. Of a size set with several shapes: of all of them
// together. Nothing on a CPU, and nothing when there is none stored and `option` is "stored"; "compile" then
// measures and stores it. Throws what MeasureTorchCompile throws.
std::optional<Baseline> BaselineFor(const BaselineQuestion& question, const EnvironmentFacts& facts,
                                    const std::string& option, const BaselineWork& work,
                                    const GpuFinder& find_gpus = FindGpus);

// Of a size set with several shapes: geometric means of the times with the shapes' weights, as speed-ups have
// them (env/verdict/shapes.h), or the first failure. At least one.
struct ShapeBaseline {
  Baseline baseline;
  double weight = 1;
};
Baseline Together(const std::vector<ShapeBaseline>& of_shapes, const std::string& size);

// Measures, showing the phases as "LABEL  torch.compile: compile", and stores what comes of it. Throws as
// MeasureTorchCompile does.
Baseline MeasureBaseline(const BaselineQuestion& question, const GpuFound& gpu, const PythonTorch& python,
                         const std::string& label, const BaselineWork& work);

// For a report's first line, after its facts: "; torch.compile 2.11: 1.2x over eager", "; torch.compile: not
// measured (kevin baseline --problem level1/19)", why there is none. "" on a CPU.
std::string BaselineNote(const std::optional<Baseline>& baseline, const Problem& problem,
                         const EnvironmentFacts& facts);

// A speed-up over eager, over torch.compile; nothing when that is unknown.
std::optional<double> OverBaseline(const std::optional<Baseline>& baseline, double speedup);

// ", 1.05x over torch.compile 2.11", to follow a speed-up over eager; "" unless torch.compile is known to be
// the faster of the two.
std::string OverBaselineText(const std::optional<Baseline>& baseline, double speedup);

// Adds `baseline`, `baseline_us` and `speedup_over_baseline` to an event whose speed-up is in
// `speedup_field`.
void AddBaselineFields(const std::optional<Baseline>& baseline, const char* speedup_field,
                       nlohmann::ordered_json* event);

// A table of what is stored for a problem, under a heading; "" when nothing is.
std::string StoredBaselinesText(const Problem& problem);

// The `baseline` event.
nlohmann::ordered_json BaselineEvent(const Baseline& baseline);

// Columns of a table with a baseline a row; kBaselineHeading names them.
extern const std::vector<std::string> kBaselineHeading;
std::vector<std::string> BaselineRow(const Baseline& baseline);

}  // namespace kevin
