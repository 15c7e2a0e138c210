#include "env/gpu/compile/compile_farm.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>

#include "env/error.h"
#include "env/gpu/compile/compile_cache.h"
#include "env/gpu/compile/compile_messages.h"
#include "env/gpu/compile/compiler_pool.h"
#include "env/gpu/compile/device_source.h"
#include "env/gpu/compile/gpu_module.h"
#include "env/gpu/ptx/inspect_ptx.h"
#include "env/problem/text.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

void CheckArchitecture(const std::string& architecture) {
  const bool ok = architecture.compare(0, 3, "sm_") == 0 && architecture.size() > 4 &&
                  std::all_of(architecture.begin() + 3, architecture.end(),
                              [](unsigned char c) { return std::isalnum(c) != 0; });
  if (!ok)
    throw Error(ExitCode::kBadRequest, "`" + architecture + "` is not a GPU architecture", "e.g. sm_90a");
}

void CheckProgram(const fs::path& program) {
  if (access(program.c_str(), X_OK) != 0)
    throw Error(ExitCode::kMachine, program.string() + " is missing", "build or install Kevin again");
}

std::vector<fs::path> RealFolders(const std::vector<fs::path>& folders) {
  std::vector<fs::path> real;
  for (const fs::path& folder : folders) {
    std::error_code error;
    real.push_back(fs::canonical(folder, error));
    if (error || !fs::is_directory(real.back())) {
      throw Error(ExitCode::kBadRequest, "--include " + folder.string() + " is not a folder",
                  "give a folder with headers");
    }
  }
  return real;
}

// Variables are asked for by their address.
std::string AddressOf(const std::string& variable) { return "&" + variable; }

struct Prepared {
  CompilerRequest request;
  std::vector<std::string> notes;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

Prepared PrepareCuda(const CudaToolchain& toolchain, const Headers& tamed, const GpuCompileRequest& asked,
                     const std::vector<fs::path>& folders) {
  const DeviceSource source = BuildDeviceSource(asked.device_text, asked.symbols);
  CompatibilityHeaders compatibility = HeadersFor(asked.device_text, folders);
  Prepared prepared;
  prepared.notes = std::move(compatibility.notes);
  CompilerRequest& request = prepared.request;
  request.kind = "cuda";
  request.text = source.text;
  request.headers = std::move(compatibility.headers);
  request.headers.insert(request.headers.end(), tamed.begin(), tamed.end());
  request.options = {"--gpu-architecture=" + asked.architecture,
                     "--std=c++20",
                     "-default-device",
                     "--ptxas-options=-v",
                     "-D__KEVIN__",
                     "-w"};
  if (asked.lines) request.options.emplace_back("-lineinfo");
  for (const fs::path& folder : folders) request.options.push_back("-I" + folder.string());
  for (const fs::path& folder : toolchain.includes) request.options.push_back("-I" + folder.string());
  if (source.precompiled) request.options.insert(request.options.end(), {"-pch", "-pch-messages=false"});
  request.names = asked.kernels;
  for (const std::string& variable : asked.variables) request.names.push_back(AddressOf(variable));
  std::sort(request.names.begin(), request.names.end());
  request.names.erase(std::unique(request.names.begin(), request.names.end()), request.names.end());
  return prepared;
}

Prepared PreparePtx(const CudaToolchain& toolchain, const GpuCompileRequest& asked) {
  if (toolchain.nvjitlink.empty()) {
    throw Error(ExitCode::kMachine, "candidates of kind `ptx` need libnvJitLink.so",
                "run tools/setup.sh, or `pip install nvidia-nvjitlink==13.0.88`");
  }
  Prepared prepared;
  prepared.request.kind = "ptx";
  prepared.request.text = asked.device_text;
  prepared.request.options = {"-arch=" + asked.architecture, "-verbose", "-Xptxas=-v"};
  if (asked.lines) prepared.request.options.emplace_back("-lineinfo");
  return prepared;
}

std::string LoweredName(const CompilerRequest& request, const CompilerReply& reply, const std::string& name) {
  if (request.kind == "ptx") return name;
  const auto found = std::find(request.names.begin(), request.names.end(), name);
  const auto at = static_cast<size_t>(found - request.names.begin());
  return at < reply.lowered_names.size() ? reply.lowered_names[at] : "";
}

// Fills in the kernels that were asked for. Empty, or an error of the text.
std::string TakeKernels(const GpuCompileRequest& asked, const CompilerRequest& request,
                        const CompilerReply& reply, const PtxReport& ptx, const PtxasReport& report,
                        GpuModule* module) {
  std::vector<std::string> there = KernelsIn(asked.device_text);
  if (asked.kind == "ptx") {
    there.clear();
    for (const auto& entry : ptx.entries) there.push_back(entry.first);
  }
  for (const std::string& name : asked.kernels) {
    KernelInfo kernel;
    const std::string lowered = LoweredName(request, reply, name);
    const auto resources = report.kernels.find(lowered);
    if (resources != report.kernels.end()) kernel = resources->second;
    kernel.name = name;
    kernel.lowered_name = lowered;
    const auto entry = std::find_if(ptx.entries.begin(), ptx.entries.end(),
                                    [&](const auto& candidate) { return candidate.first == lowered; });
    if (entry == ptx.entries.end()) return NoSuchKernel(name, there);
    kernel.parameters = entry->second;
    module->kernels.push_back(std::move(kernel));
  }
  return "";
}

}  // namespace

struct CompileFarm::Impl {
  Impl(CudaToolchain toolchain_arg, CompileFarmOptions options_arg)
      : toolchain(std::move(toolchain_arg)),
        options(std::move(options_arg)),
        tamed(HeadersWithoutClock(toolchain.includes)),
        cache(options.cache_directory / "gpu", options.cache_limit_bytes),
        pool(toolchain, options) {}

  std::string KeyOf(const CompilerRequest& request, const std::vector<fs::path>& folders) {
    std::string identity =
        toolchain.version + "\n" + std::to_string(options.limits.compile_memory_mb) + " MB\n";
    for (const fs::path& folder : folders) identity += folder_hashes.HashOf(folder) + "\n";
    return Sha256Hex(identity + ToBytes(request));
  }

  CompilerReply Run(const CompilerRequest& request, const std::vector<fs::path>& folders,
                    GpuCompiled* compiled);
  GpuCompiled Finish(const GpuCompileRequest& asked, const CompilerRequest& request, CompilerReply reply,
                     GpuCompiled compiled) const;

  CudaToolchain toolchain;
  CompileFarmOptions options;
  const Headers tamed;
  CompileCache cache;
  FolderHashes folder_hashes;
  CompilerPool pool;  // last: its threads use what is above
};

CompilerReply CompileFarm::Impl::Run(const CompilerRequest& request, const std::vector<fs::path>& folders,
                                     GpuCompiled* compiled) {
  const std::string key = KeyOf(request, folders);
  if (std::optional<CompilerReply> known = cache.Find(key)) {
    compiled->cached = true;
    return std::move(*known);
  }
  PoolAnswer answer = pool.Compile(request, folders);
  compiled->timed_out = answer.timed_out;
  if (answer.timed_out || !answer.ended.empty()) {
    answer.reply = CompilerReply();
    answer.reply.status = CompilerStatus::kTextHasErrors;
    if (!answer.ended.empty()) {
      answer.reply.log = "the compiler fails on this text (" + answer.ended + "; it may use " +
                         std::to_string(options.limits.compile_memory_mb) + " MB); simplify it\n";
    }
    return std::move(answer.reply);
  }
  if (answer.reply.status == CompilerStatus::kNotUsable) {
    throw Error(ExitCode::kMachine, toolchain.version + " cannot be used: " + answer.reply.log,
                "see `kevin doctor`; KEVIN_CUDA chooses another CUDA 13 folder");
  }
  cache.Store(key, answer.reply);
  return std::move(answer.reply);
}

GpuCompiled CompileFarm::Impl::Finish(const GpuCompileRequest& asked, const CompilerRequest& request,
                                      CompilerReply reply, GpuCompiled compiled) const {
  const PtxasReport report = ReadPtxasReport(reply.log);
  std::string log = report.rest;
  if (reply.status != CompilerStatus::kCompiled) {
    log = ExplainMissingKernels(log, asked.kernels, KernelsIn(asked.device_text));
    if (log.empty()) log = ExplainTooMuchShared(report);
    if (log.empty() && !compiled.timed_out)
      log = reply.log.empty() ? "the compiler reported no reason\n" : reply.log;
  } else {
    const PtxReport ptx = InspectPtx(reply.ptx, asked.debug);
    compiled.refused = ptx.refused;
    GpuModule module{std::move(reply.cubin), std::move(reply.ptx), {}};
    const std::string error =
        ptx.refused.empty() ? TakeKernels(asked, request, reply, ptx, report, &module) : std::string();
    log += error;
    if (error.empty()) compiled.module = std::move(module);
    for (const std::string& variable : asked.variables)
      compiled.variables[variable] =
          LoweredName(request, reply, asked.kind == "ptx" ? variable : AddressOf(variable));
  }
  compiled.log = TrimmedLog(log, options.limits.max_log_bytes);
  return compiled;
}

CompileFarm::CompileFarm(CudaToolchain toolchain, CompileFarmOptions options) {
  CheckProgram(options.compiler_program);
  CheckProgram(options.runner_program);
  impl_ = std::make_unique<Impl>(std::move(toolchain), std::move(options));
}

CompileFarm::~CompileFarm() = default;

GpuCompiled CompileFarm::Compile(const GpuCompileRequest& asked) {
  const auto start = std::chrono::steady_clock::now();
  CheckArchitecture(asked.architecture);
  if (asked.kind != "cuda" && asked.kind != "ptx")
    throw Error(ExitCode::kBadRequest, "the compile farm has no kind `" + asked.kind + "`", "cuda or ptx");
  const std::vector<fs::path> folders = RealFolders(asked.include_directories);
  const Prepared prepared = asked.kind == "ptx" ? PreparePtx(impl_->toolchain, asked)
                                                : PrepareCuda(impl_->toolchain, impl_->tamed, asked, folders);
  GpuCompiled compiled;
  compiled.notes = prepared.notes;
  CompilerReply reply = impl_->Run(prepared.request, folders, &compiled);
  compiled = impl_->Finish(asked, prepared.request, std::move(reply), std::move(compiled));
  compiled.seconds = SecondsSince(start);
  return compiled;
}

}  // namespace kevin
