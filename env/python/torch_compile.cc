#include "env/python/torch_compile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/reference_operators.h"
#include "env/process/files.h"
#include "env/process/find_program.h"
#include "env/process/machine.h"
#include "env/python/python_process.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double kVersionLimit_s = 30;
constexpr double kStopLook_s = 0.2;
constexpr const char* kDefaultMode = "default";
constexpr double kTuningFactor = 4;  // of the limit, in the modes that tune

constexpr const char* kHowToGetPython =
    "install torch 2.11 with CUDA for python3, or set KEVIN_PYTHON to a Python that has it";
constexpr const char* kHowToGetAnyPython =
    "install torch 2.11 for python3 (pip install torch==2.11.0), or set KEVIN_PYTHON to a Python that has it";

json ParseAnswer(const std::string& line) {
  json answer = json::parse(line, nullptr, false);
  if (answer.is_object()) return answer;
  throw Error(ExitCode::kBroken, "the answer of Python is not a JSON object: " + line.substr(0, 200),
              "check that KEVIN_PYTHON is a Python 3");
}

[[noreturn]] void ThrowMachine(const fs::path& python, const std::string& what,
                               const char* next_step = kHowToGetPython) {
  throw Error(ExitCode::kMachine, python.string() + ": " + what, next_step);
}

std::string Hex(const std::string& bytes) {
  return fmt::format("{:02x}", fmt::join(std::vector<uint8_t>(bytes.begin(), bytes.end()), ""));
}

std::string JobText(const Problem& problem, const TorchCompileRequest& request) {
  json inputs = json::array();
  const SizedProblem sized = AtSize(problem, request.size);
  for (const ConcreteTensor& input : sized.inputs) {
    inputs.push_back({{"name", input.spec.name},
                      {"shape", input.shape},
                      {"dtype", DTypeName(input.spec.dtype)},
                      {"distribution", DistributionName(input.spec.distribution)},
                      {"scale", input.spec.scale},
                      {"offset", input.spec.offset},
                      {"row_shift", input.spec.row_shift},
                      {"stored", input.spec.stored ? Hex(*input.spec.stored) : ""},
                      {"role", input.spec.is_param   ? "param"
                               : input.spec.is_inout ? "inout"
                                                     : "input"}});
  }
  return json{{"problem", problem.id},
              {"reference", problem.reference},
              {"inputs", inputs},
              {"tf32", request.tf32},
              {"mode", request.mode},
              {"device", request.gpu.index},
              {"seconds", request.measure_s},
              {"operators", ReferenceOperators()}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

double LimitOf(const TorchCompileRequest& request) {
  return request.mode == kDefaultMode ? request.limit_s : kTuningFactor * request.limit_s;
}

// One measurement: the lines of the script and the GPU's lock.
class Measurement {
 public:
  explicit Measurement(const TorchCompileRequest& request)
      : request_(request),
        lock_name_(DeviceLock::NameOfGpu(request.gpu.pci_bus)),
        left_s_(LimitOf(request)),
        work_(fs::temp_directory_path(), "kevin-baseline-"),
        python_(Start(request, work_.path())) {}

  // Times or an `error`.
  json Run(const std::string& job) {
    // What is tuned is timed while it compiles.
    Lock(request_.mode == kDefaultMode ? LockMode::kShared : LockMode::kExclusive);
    python_.Write(job);
    std::string line;
    while (true) {
      const auto start = Clock::now();
      const PythonProcess::Event event = python_.Read(std::min(left_s_, kStopLook_s), &line);
      left_s_ -= std::chrono::duration<double>(Clock::now() - start).count();
      if (request_.stop != nullptr && *request_.stop)
        throw Error(ExitCode::kInterrupted, "interrupted while torch.compile was measured");
      if (event == PythonProcess::Event::kTimedOut) {
        if (left_s_ > 0) continue;
        return {{"error", fmt::format("not finished after {:g} s, in phase: {}", LimitOf(request_), phase_)}};
      }
      if (event == PythonProcess::Event::kEnded) ThrowEnd();
      json answer = ParseAnswer(line);
      if (!answer.contains("phase")) return answer;
      Enter(answer["phase"]);
    }
  }

 private:
  static PythonProcess Start(const TorchCompileRequest& request, const fs::path& work) {
    const std::vector<std::string> argv = {request.python.python.string(), request.script.string()};
    if (!request.sandboxed) return PythonProcess(argv);
    PythonSandbox sandbox;
    sandbox.work = work;
    sandbox.visible.assign(request.python.folders.begin(), request.python.folders.end());
    sandbox.visible.push_back(request.script.parent_path());
    sandbox.cpu_limit_s = LimitOf(request) * UsableCpus();
    sandbox.gpu = true;
    return PythonProcess(argv, &sandbox);
  }

  void Enter(const std::string& phase) {
    phase_ = phase;
    if (request_.on_phase) request_.on_phase(phase);
    if (phase != "measure") return;
    Lock(LockMode::kExclusive);
    python_.Write("go");
  }

  [[noreturn]] void ThrowEnd() {
    const std::string how = python_.DescribeEnd();
    if (python_.LacksSandbox())
      throw Error(ExitCode::kMachine, "the sandbox for a reference in Python cannot be entered: " + how,
                  "kevin doctor says what it lacks");
    throw Error(ExitCode::kBroken,
                fmt::format("{} {}, in phase: {}", request_.python.python.string(), how, phase_),
                "try again; if it happens again, try torch.compile in Python alone");
  }

  void Lock(LockMode mode) {
    lock_.reset();
    lock_.emplace(lock_name_, mode, nullptr);
  }

  const TorchCompileRequest& request_;
  const std::string lock_name_;
  double left_s_;
  std::string phase_ = "start Python";
  std::optional<DeviceLock> lock_;
  const WorkFolder work_;
  PythonProcess python_;  // destroyed before the lock
};

}  // namespace

fs::path TorchCompileScript() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed = program.parent_path().parent_path() / "share/kevin/torch_compile.py";
  if (!error && fs::exists(installed, error)) return installed;
  return KEVIN_SOURCE_TORCH_COMPILE;
}

PythonTorch FindPythonTorch(const PythonUse& use) {
  const char* next_step = use.cuda ? kHowToGetPython : kHowToGetAnyPython;
  const char* chosen = std::getenv("KEVIN_PYTHON");
  const std::string name = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  const fs::path python = FindProgram(name);
  if (python.empty()) {
    throw Error(ExitCode::kMachine, fmt::format("{} needs Python, and there is no {}", use.what, name),
                next_step);
  }
  PythonProcess process({python.string(), TorchCompileScript().string(), "--version"});
  std::string line;
  switch (process.Read(kVersionLimit_s, &line)) {
    case PythonProcess::Event::kTimedOut:
      ThrowMachine(python, fmt::format("gives no torch version within {:g} s", kVersionLimit_s), next_step);
    case PythonProcess::Event::kEnded:
      ThrowMachine(python, process.DescribeEnd(), next_step);
    case PythonProcess::Event::kLine:
      break;
  }
  const json answer = ParseAnswer(line);
  if (answer.contains("error")) ThrowMachine(python, answer["error"].get<std::string>(), next_step);
  const std::string version = answer.value("torch", "");
  if (use.cuda && (!answer.contains("cuda") || answer["cuda"].is_null()))
    ThrowMachine(python, "its torch " + version + " was built without CUDA");
  return {python, version, answer.value("folders", std::vector<std::string>())};
}

std::vector<std::string> TorchCompileModes() {
  return {kDefaultMode, "max-autotune", "max-autotune-no-cudagraphs"};
}

BaselineKey KeyOfBaseline(const Problem& problem, const std::string& size, bool tf32, const GpuFound& gpu,
                          const std::string& mode) {
  return {problem.content_hash,
          size,
          tf32,
          gpu.name,
          std::to_string(gpu.driver_version),
          PrecisionName(PrecisionOf(problem)),
          mode};
}

Baseline MeasureTorchCompile(const Problem& problem, const TorchCompileRequest& request) {
  Baseline baseline;
  baseline.key = KeyOfBaseline(problem, request.size, request.tf32, request.gpu, request.mode);
  baseline.problem = problem.id;
  baseline.torch_version = request.python.torch_version;
  const json answer = Measurement(request).Run(JobText(problem, request));
  baseline.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  if (answer.contains("error")) {
    const std::string why = answer["error"];
    if (answer.value("machine", false)) ThrowMachine(request.python.python, why);
    baseline.failure = why.empty() ? "no reason given" : why;
    return baseline;
  }
  try {
    baseline.eager_us = answer.at("eager_us");
    baseline.compiled_us = answer.at("compiled_us");
    baseline.compile_s = answer.at("compile_s");
    baseline.max_error = answer.at("max_error");
    baseline.pairs = answer.at("pairs");
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBroken,
                std::string("the answer of torch_compile.py is incomplete: ") + error.what(),
                "install Kevin again");
  }
  if (!(baseline.eager_us > 0 && baseline.compiled_us > 0)) baseline.failure = "its times are not positive";
  return baseline;
}

}  // namespace kevin
