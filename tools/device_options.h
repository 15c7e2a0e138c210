#pragma once
// The options that `run` and `bench` share: the device that judges a candidate, and the conditions.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/find_gpus.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kevin {

struct DeviceOptions {
  std::string device = "auto";  // "auto", "cpu" or "cuda:N"
  std::string tf32 = "off";     // or "reference"
  std::string precision = "fp32";
  std::string isolation = "full";
  bool unsafe_python = false;
  std::string rules;  // as --rules gives them; empty: RulesFor decides
  std::vector<std::string> include;
  bool profile = false;        // --profile [OUT.ncu-rep]
  std::string profile_report;  // OUT; empty: only the counters are kept
  int threads = 0;
};

// --kind: what a policy writes.
CLI::Option* AddKindOption(CLI::App* command, std::string* kind);

// --rules: Workload::rules. `by_default`: which they are where the option is not given, for the help.
CLI::Option* AddRulesOption(CLI::App* command, std::string* rules, const std::string& by_default);
// `asked`, unless it is empty. Else "open" for candidates in Python where all of the problems were imported from a user's own
// modules: there any correct answer is welcome, calls of libraries included. Else "kevin".
std::string RulesFor(const std::string& asked, const std::string& kind,
                     const std::vector<const Problem*>& problems);
inline constexpr const char* kUnsafePythonHelp =
    "Run kernels in Python even where their files and network cannot be isolated";

// --device, --tf32, --precision, --include, --profile, --threads, --isolation, --unsafe-python. Values outside the allowed
// ones are usage errors.
void AddDeviceOptions(CLI::App* command, DeviceOptions* options);

// --tune N: how many settings of a candidate's knobs are tried (env/knobs/tune.h). Not given: DefaultSettings().
CLI::Option* AddTuneOption(CLI::App* command, std::optional<int>* tune);
// --prompts: "kevin" or "kernelbench" (agent/conversation.h).
CLI::Option* AddPromptsOption(CLI::App* command, std::string* prompts);
// --memory DB: records that the policy begins with (agent/memory.h).
CLI::Option* AddMemoryOption(CLI::App* command, std::string* memory);

// --diagnose off, best or all (agent/episode.h); `turns`: which correct kernels "best" means, for the help.
CLI::Option* AddDiagnoseOption(CLI::App* command, std::string* diagnose, const std::string& turns);

// Why this is not the name of a device ("auto", "cpu", "cuda:N"); empty: it is.
std::string WhyNoDevice(const std::string& device);

// For commands that use several devices: --device may be repeated, and may be "all". Call it after
// AddDeviceOptions.
void AllowManyDevices(CLI::App* command, std::vector<std::string>* devices);

// --precision alone, for commands without the other options.
void AddPrecisionOption(CLI::App* command, std::string* precision);

// The problem in the precision of --precision. Throws Error(kBadRequest) where --tf32, which is about float32, is
// asked for too.
Problem AsAsked(Problem problem, const DeviceOptions& options);

// The conditions of judging that the options give. `rules`: of RulesFor.
Workload WorkloadFor(const DeviceOptions& options, const std::string& size, const std::string& inputs,
                     const std::string& rules);

// For a report's first line: ", bf16"; "" for fp32.
std::string PrecisionNote(const std::string& precision);

// For a report's first line: ", rules open"; "" where the candidate is not in Python (it has no backend).
std::string RulesNote(const std::string& backend, const std::string& rules);

using GpuFinder = std::function<std::vector<GpuFound>(std::string* why_none)>;

// The GPU of an environment; nothing for a CPU.
std::optional<GpuFound> GpuOf(const EnvironmentFacts& facts, const GpuFinder& find_gpus = FindGpus);

// The device to ask MakeEnvironment for, given the kind of the candidate ("" when it is not known): with "auto" a
// C++ kernel goes to the CPU, a kernel for GPUs to the first usable one, one in Python to the first usable GPU or else to
// the CPU, and an unknown kind stays "auto" unless there is no GPU. GPUs are searched for only where that matters. Throws Error(kBadRequest) when kind and
// device contradict each other, or an option for GPUs is given for the CPU; Error(kMachine) when a
// GPU is needed and there is none.
std::string ChooseDevice(const DeviceOptions& options, const std::string& kind,
                         const GpuFinder& find_gpus = FindGpus);

// The same for several: "all" is every usable GPU. None given means "auto".
std::vector<std::string> ChooseDevices(const std::vector<std::string>& devices, const DeviceOptions& options,
                                       const std::string& kind, const GpuFinder& find_gpus = FindGpus);

// The kind of candidate that policies write for a device from ChooseDevice: "cpp" or "cuda"; "" for "auto".
std::string KindOnDevice(const std::string& device);

// `device` as ChooseDevice gave it. Throws Error(kBadRequest) when an --include is no folder.
EnvironmentOptions EnvironmentOptionsFor(const DeviceOptions& options, const std::string& device);

// Once an environment has started: throws Error(kBadRequest) unless it judges candidates of this kind and
// supports the given options. ChooseDevice reports the same earlier where it can.
void RequireKind(const EnvironmentFacts& facts, const DeviceOptions& options, const std::string& kind);

}  // namespace kevin
