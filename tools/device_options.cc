#include "tools/device_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/gpu/examine/examiner.h"
#include "env/knobs/tune.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

// The first thing asked for that only a GPU has; empty: none.
std::string OnlyOnGpu(const DeviceOptions& options) {
  if (options.tf32 != "off") return "--tf32 " + options.tf32;
  if (options.profile) return "--profile";
  return options.include.empty() ? "" : "--include";
}

[[noreturn]] void ThrowOnlyOnGpu(const std::string& option, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("{} is for kernels on a GPU; {}", option, why),
              "leave it out, or use a machine with an NVIDIA GPU (kevin doctor)");
}

[[noreturn]] void ThrowContradiction(const std::string& kind, const std::string& device) {
  throw Error(ExitCode::kBadRequest,
              fmt::format("a kernel of kind {} is not judged on device {}", kind, device),
              IsForGpu(kind) ? "use --device auto or cuda:0 on a machine with an NVIDIA GPU"
                             : "use --device cpu, or give a .cu file");
}

}  // namespace

CLI::Option* AddKindOption(CLI::App* command, std::string* kind) {
  return command
      ->add_option(
          "--kind", *kind,
          "What the policy writes: cpp, cuda, ptx, modelnew (a PyTorch module) or triton (default: cpp on a CPU, cuda on a "
          "GPU)")
      ->check(CLI::IsMember({"cpp", "cuda", "ptx", "modelnew", "triton"}));
}

CLI::Option* AddRulesOption(CLI::App* command, std::string* rules, const std::string& by_default) {
  return command
      ->add_option(
          "--rules", *rules,
          "Of kernels in Python: kevin (their own kernels do 90 % of the work), kernelbench (its static rules) or open "
          "(anything correct) (default: " +
              by_default + ")")
      ->check(CLI::IsMember({"kevin", "kernelbench", "open"}));
}

std::string RulesFor(const std::string& asked, const std::string& kind,
                     const std::vector<const Problem*>& problems) {
  if (!asked.empty()) return asked;
  const bool all_own =
      !problems.empty() && std::all_of(problems.begin(), problems.end(),
                                       [](const Problem* problem) { return problem->module.has_value(); });
  return IsPython(kind) && all_own ? "open" : "kevin";
}

CLI::Option* AddTuneOption(CLI::App* command, std::optional<int>* tune) {
  return command
      ->add_option(
          "--tune", *tune,
          "Settings of a kernel's knobs (// knob TILE: 64 128) to try before it is judged; 0: the first value "
          "of each (default: 24 on a GPU, 8 on a CPU)")
      ->check(CLI::Range(0, kMaxSettings));
}

CLI::Option* AddPromptsOption(CLI::App* command, std::string* prompts) {
  return command
      ->add_option("--prompts", *prompts,
                   "kernelbench: KernelBench's one-shot form, for models trained on it; with --kind modelnew")
      ->check(CLI::IsMember({"kevin", "kernelbench"}))
      ->capture_default_str();
}

CLI::Option* AddMemoryOption(CLI::App* command, std::string* memory) {
  return command->add_option(
      "--memory", *memory,
      "A database of earlier runs: the policy begins with what was best on similar problems in it");
}

CLI::Option* AddDiagnoseOption(CLI::App* command, std::string* diagnose, const std::string& turns) {
  return command
      ->add_option(
          "--diagnose", *diagnose,
          fmt::format(
              "Collect evidence of what limits a correct kernel (hot loop, threads, caches, stages; on a "
              "GPU its launches), after its verdict, for about a second: off, best ({}) or all",
              turns))
      ->check(CLI::IsMember({"off", "best", "all"}))
      ->capture_default_str();
}

std::string WhyNoDevice(const std::string& device) {
  const bool numbered = device.starts_with("cuda:") && device.size() > 5 && device.size() <= 8 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (device == "auto" || device == "cpu" || numbered) return "";
  return device + " is not auto, cpu or cuda:N";
}

void AddPrecisionOption(CLI::App* command, std::string* precision) {
  command
      ->add_option("--precision", *precision,
                   "fp32, fp16 or bf16: the type of all floating inputs, parameters and outputs")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->capture_default_str();
}

Problem AsAsked(Problem problem, const DeviceOptions& options) {
  const Precision precision = PrecisionNamed(options.precision);
  if (precision != Precision::kFp32 && options.tf32 != "off") {
    throw Error(ExitCode::kBadRequest,
                fmt::format("--tf32 is about float32 products; --precision {} has none", options.precision),
                "leave one of the two out");
  }
  return InPrecision(std::move(problem), precision);
}

Workload WorkloadFor(const DeviceOptions& options, const std::string& size, const std::string& inputs,
                     const std::string& rules) {
  return {size, inputs, options.precision, options.tf32 == "reference", rules};
}

std::string RulesNote(const std::string& backend, const std::string& rules) {
  return backend.empty() ? "" : ", rules " + rules;
}

std::string PrecisionNote(const std::string& precision) {
  return precision.empty() || precision == "fp32" ? "" : ", " + precision;
}

void AddDeviceOptions(CLI::App* command, DeviceOptions* options) {
  command
      ->add_option("--device", options->device, "auto (the first usable GPU, else the CPU), cpu, or cuda:N")
      ->check(WhyNoDevice)
      ->capture_default_str();
  command
      ->add_option("--tf32", options->tf32,
                   "On a GPU: reference lets both sides round float32 products to TF32")
      ->check(CLI::IsMember({"off", "reference"}))
      ->capture_default_str();
  AddPrecisionOption(command, &options->precision);
  command
      ->add_option("--include", options->include, "On a GPU: a folder of headers for the kernel; repeatable")
      ->allow_extra_args(false);
  command
      ->add_option_function<std::vector<std::string>>(
          "--profile",
          [options](const std::vector<std::string>& given) {
            options->profile = true;
            if (!given.empty()) options->profile_report = given.front();
          },
          "On a GPU: read the hardware's counters of every correct kernel (Nsight Compute), for the report and "
          "the policy; OUT.ncu-rep also keeps its own file")
      ->expected(0, 1)
      ->option_text("[OUT.ncu-rep]")
      ->check([](const std::string& path) {
        return path.empty() || path.ends_with(".ncu-rep") ? "" : path + " does not end in .ncu-rep";
      });
  command
      ->add_option("--threads", options->threads, "On a CPU: threads of kernel and reference; 0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--isolation", options->isolation, "reduced: run kernels even where the sandbox leaks")
      ->check(CLI::IsMember({"full", "reduced"}))
      ->capture_default_str();
  AddRulesOption(command, &options->rules, "open for modules of your own, else kevin");
  command->add_flag("--unsafe-python", options->unsafe_python, kUnsafePythonHelp);
}

std::string KindOnDevice(const std::string& device) {
  return device == "cpu" ? "cpp" : device == "auto" ? "" : "cuda";
}

std::optional<GpuFound> GpuOf(const EnvironmentFacts& facts, const GpuFinder& find_gpus) {
  if (!facts.device.starts_with("cuda:")) return std::nullopt;  // "cuda:0: NVIDIA H200"
  std::string why_none;
  for (const GpuFound& gpu : find_gpus(&why_none)) {
    if (facts.device.starts_with(fmt::format("cuda:{}:", gpu.index))) return gpu;
  }
  return std::nullopt;
}

std::string ChooseDevice(const DeviceOptions& options, const std::string& kind, const GpuFinder& find_gpus) {
  const std::string gpu_only = OnlyOnGpu(options);
  if (options.device != "auto") {
    const bool on_cpu = options.device == "cpu";
    if (!kind.empty() && !IsPython(kind) && IsForGpu(kind) == on_cpu)
      ThrowContradiction(kind, options.device);
    if (on_cpu && !gpu_only.empty()) ThrowOnlyOnGpu(gpu_only, "--device cpu was given");
    return options.device;
  }
  if (kind == "cpp") {
    if (!gpu_only.empty())
      ThrowOnlyOnGpu(gpu_only, fmt::format("a {} kernel is judged on the CPU", LanguageOf(kind)));
    return "cpu";
  }
  std::string why_none;
  const std::vector<GpuFound> gpus = find_gpus(&why_none);
  std::string fix = "run it on a machine with an NVIDIA GPU; kevin doctor says what this one has";
  for (const GpuFound& gpu : gpus) {
    const GpuObstacle obstacle = ObstacleTo(gpu);
    if (obstacle.reason.empty()) return kind.empty() ? "auto" : fmt::format("cuda:{}", gpu.index);
    why_none = obstacle.reason;
    fix = obstacle.fix;
  }
  if (!kind.empty() && !IsPython(kind)) {
    throw Error(ExitCode::kMachine, fmt::format("a kernel of kind {} needs a GPU: {}", kind, why_none), fix);
  }
  if (!gpu_only.empty()) ThrowOnlyOnGpu(gpu_only, why_none);
  if (!gpus.empty()) PrintFormat(stderr, "kevin: the CPU is used: {}\n  next: {}\n", why_none, fix);
  return "cpu";
}

void AllowManyDevices(CLI::App* command, std::vector<std::string>* devices) {
  command->remove_option(command->get_option("--device"));
  command
      ->add_option("--device", *devices,
                   "auto (the first usable GPU, else the CPU), cpu, cuda:N, or all (GPUs); repeatable")
      ->check([](const std::string& device) { return device == "all" ? "" : WhyNoDevice(device); })
      ->allow_extra_args(false);
}

std::vector<std::string> ChooseDevices(const std::vector<std::string>& devices, const DeviceOptions& options,
                                       const std::string& kind, const GpuFinder& find_gpus) {
  std::vector<std::string> chosen;
  const auto add = [&](const std::string& device) {
    if (std::find(chosen.begin(), chosen.end(), device) == chosen.end()) chosen.push_back(device);
  };
  for (const std::string& device : devices.empty() ? std::vector<std::string>{"auto"} : devices) {
    if (device != "all") {
      DeviceOptions one = options;
      one.device = device;
      add(ChooseDevice(one, kind, find_gpus));
      continue;
    }
    std::string why_none;
    for (const GpuFound& gpu : find_gpus(&why_none)) {
      const GpuObstacle obstacle = ObstacleTo(gpu);
      if (obstacle.reason.empty()) {
        add(fmt::format("cuda:{}", gpu.index));
      } else {
        why_none = obstacle.reason;
      }
    }
    if (chosen.empty()) {
      throw Error(ExitCode::kMachine, "--device all: no usable GPU: " + why_none,
                  "use --device cpu; kevin doctor says what this machine has");
    }
  }
  return chosen;
}

EnvironmentOptions EnvironmentOptionsFor(const DeviceOptions& options, const std::string& device) {
  EnvironmentOptions environment = EnvironmentOptionsFor(options.threads, options.isolation);
  environment.device = device;
  environment.unsafe_python = options.unsafe_python;
  if (options.profile && device != "cpu" && Examiner::FindTool("ncu").empty()) {
    throw Error(ExitCode::kMachine, "--profile: Nsight Compute (ncu) is not on this machine",
                "it comes with the CUDA toolkit: install it, or set KEVIN_CUDA to the toolkit's folder");
  }
  for (const std::string& folder : options.include) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored)) {
      throw Error(ExitCode::kBadRequest, fmt::format("--include {}: no such folder", folder),
                  "give the folder from which the kernel's #include paths start");
    }
    environment.include_directories.push_back(std::filesystem::absolute(folder));
  }
  return environment;
}

void RequireKind(const EnvironmentFacts& facts, const DeviceOptions& options, const std::string& kind) {
  if (std::find(facts.kinds.begin(), facts.kinds.end(), kind) == facts.kinds.end()) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("a kernel of kind {} is not judged on {}", kind, facts.device),
                fmt::format("kinds there: {}", fmt::join(facts.kinds, ", ")));
  }
  if (IsPython(kind) && !facts.device.starts_with("cpu")) {
    if (options.profile || !options.include.empty())
      ThrowOnlyOnGpu(options.profile ? "--profile" : "--include", "and not for kernels in Python");
    return;
  }
  if (!IsForGpu(kind) && !OnlyOnGpu(options).empty())
    ThrowOnlyOnGpu(OnlyOnGpu(options), "this is " + facts.device);
}

}  // namespace kevin
