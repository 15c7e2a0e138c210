#include "env/gpu/gpu_build.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "env/error.h"
#include "env/gpu/ptx/inspect_ptx.h"
#include "env/gpu/runner/device_memory.h"
#include "env/problem/text.h"
#include "env/process/spawn.h"
#include "env/sandbox/self_test.h"

namespace kevin {
namespace {

CompileFarmOptions FarmOptions(const EnvironmentOptions& options) {
  CompileFarmOptions farm;
  farm.compiler_program = RequireProgram(options.program_directory, "kevin-gpu-compiler");
  farm.runner_program = RequireProgram(options.program_directory, "kevin-runner");
  farm.cache_directory = options.cache_directory;
  farm.namespaces = NamespacesAvailable();
  farm.limits = options.limits;
  return farm;
}

}  // namespace

GpuBuilder::GpuBuilder(const EnvironmentOptions& options, const GpuFound& gpu)
    : options_(options),
      architecture_(ArchitectureOf(gpu)),
      toolchain_(FindCudaToolchain()),
      farm_(toolchain_, FarmOptions(options)) {}

std::string GpuBuilder::TrustedCubin() {
  GpuCompileRequest request;
  request.device_text = TrustedKernelText();
  request.kernels = TrustedKernelNames();
  request.architecture = architecture_;
  const GpuCompiled compiled = farm_.Compile(request);
  if (compiled.module.cubin.empty()) {
    throw Error(ExitCode::kMachine, "NVRTC does not compile Kevin's own kernels: " + compiled.log,
                "install NVRTC 13.0 (tools/setup.sh does), or point KEVIN_CUDA at a CUDA 13 toolkit");
  }
  const std::filesystem::path folder = options_.cache_directory / "gpu-trusted";
  std::filesystem::create_directories(folder);
  const std::filesystem::path path = folder / (Sha256Hex(compiled.module.cubin) + ".cubin");
  if (std::filesystem::exists(path)) return path;
  const std::filesystem::path partial = path.string() + "." + std::to_string(getpid());
  std::ofstream out(partial, std::ios::binary);
  out << compiled.module.cubin;
  if (!out.flush())
    throw Error(ExitCode::kBroken, "cannot write " + partial.string(), "free some disk space");
  out.close();
  std::filesystem::rename(partial, path);
  return path;
}

GpuBuild GpuBuilder::Build(const SizedProblem& sized, const Candidate& candidate, BuildPurpose purpose) {
  GpuBuild built;
  const bool debug = purpose == BuildPurpose::kDebug;
  const auto start = std::chrono::steady_clock::now();
  try {
    InterpretedLaunch launch = InterpretLaunch(sized, candidate.kind, candidate.source);
    GpuCompileRequest request;
    request.kind = candidate.kind;
    request.device_text = launch.split.device_text;
    request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
    for (const ConstantValue& constant : launch.list.constants) request.variables.push_back(constant.symbol);
    request.symbols = sized.symbols;
    request.architecture = architecture_;
    request.include_directories = options_.include_directories;
    request.debug = debug;
    request.lines = purpose != BuildPurpose::kJudge;
    GpuCompiled compiled = farm_.Compile(request);
    built.list = std::move(launch.list);
    for (const std::string& note : launch.split.notes) built.log += note + "\n";
    for (const std::string& note : compiled.notes) built.log += note + "\n";
    built.log += compiled.log;
    if (compiled.timed_out) {
      built.failure = TimedOut{"compile", options_.limits.compile_timeout_s};
    } else if (compiled.module.cubin.empty()) {
      built.failure = CompileFailed{compiled.log};
    } else if (!compiled.refused.empty()) {
      built.failure = Refused{compiled.refused};
    } else {
      std::string error;
      const PtxReport report = InspectPtx(compiled.module.ptx, debug);
      built.plan = MakeLaunchPlan(built.list, compiled.module, report.globals, compiled.variables, &error);
      if (!error.empty()) built.failure = CompileFailed{error};
      built.module = std::move(compiled.module);
    }
  } catch (const LaunchException& exception) {
    built.failure = CompileFailed{exception.error().message};
  }
  built.compile_s = SecondsSince(start);
  return built;
}

std::vector<KernelReport> GpuBuilder::Reports(const GpuBuild& built, const MultiprocessorLimits& limits) {
  std::vector<KernelReport> reports;
  for (const PlannedOperation& operation : built.plan.operations) {
    const auto* planned = std::get_if<PlannedLaunch>(&operation);
    if (!planned) continue;
    const KernelLaunch& launch = planned->launch;
    const auto info = std::find_if(built.module.kernels.begin(), built.module.kernels.end(),
                                   [&](const KernelInfo& kernel) { return kernel.name == launch.kernel; });
    if (info == built.module.kernels.end()) continue;
    const auto dimensions = [](const Dim3& d) { return fmt::format("{} x {} x {}", d.x, d.y, d.z); };
    KernelReport report;
    report.name = launch.kernel;
    report.grid = dimensions(launch.grid);
    report.block = dimensions(launch.block);
    report.registers = info->registers;
    report.static_shared_bytes = info->static_shared_bytes;
    report.dynamic_shared_bytes = launch.shared_bytes;
    report.spill_store_bytes = info->spill_store_bytes;
    report.spill_load_bytes = info->spill_load_bytes;
    const Occupancy occupancy =
        OccupancyOf(limits, static_cast<int>(launch.block.x * launch.block.y * launch.block.z),
                    info->registers, info->static_shared_bytes + launch.shared_bytes,
                    int64_t{launch.grid.x} * launch.grid.y * launch.grid.z);
    report.occupancy = occupancy.share;
    report.limited_by = occupancy.limited_by;
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace kevin
