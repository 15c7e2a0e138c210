#include "env/python/kernelbench_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "env/cpu/compile.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/problem/precision.h"
#include "env/problem/python_model.h"
#include "env/process/files.h"
#include "env/process/machine.h"
#include "env/python/python_kind.h"
#include "env/python/python_process.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using JudgeClock = std::chrono::steady_clock;

constexpr double kJudgeStopLook_s = 0.5;
constexpr size_t kMostReason = 600;
constexpr size_t kMostDifferences = 16, kMostInputs = 64, kMostDims = 16;

void WriteJudgeFile(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw Error(ExitCode::kBroken, "cannot write " + path.string(), "free some disk space");
}

CompileOptions CompileOptionsOf(const KernelBenchJudgeOptions& options) {
  CompileOptions compile;
  compile.runner = RequireProgram(options.environment.program_directory, "kevin-runner");
  compile.cache_directory = options.environment.cache_directory;
  compile.namespaces = NamespacesAvailable();
  compile.limits = options.environment.limits;
  compile.stop = options.stop;
  return compile;
}

std::string JobText(const KernelBenchJudgeOptions& options, const PythonSetup& setup,
                    const SizedProblem& sized, bool own_file) {
  const int threads = options.environment.threads > 0 ? options.environment.threads : UsableCpus();
  return Json({{"reference", "reference.py"},
               {"bundle", "bundle"},
               {"folder", "candidate"},
               {"library", setup.library},
               {"own_file", own_file},
               {"device", options.gpu ? fmt::format("cuda:{}", options.gpu->index) : "cpu"},
               {"precision", PrecisionName(PrecisionOf(*sized.problem))},
               {"threads", threads},
               {"timing_limit_s", options.timing_limit_s}})
      .dump();
}

KernelBenchVerdict NotJudged(const std::string& reason, bool compiled) {
  KernelBenchVerdict verdict;
  verdict.compiled = compiled;
  verdict.reason = Printable(reason.substr(0, kMostReason));
  return verdict;
}

std::vector<std::vector<int64_t>> InputShapesOf(const Json& given) {
  std::vector<std::vector<int64_t>> shapes;
  if (!given.is_array() || given.size() > kMostInputs) return {};
  for (const Json& each : given) {
    if (!each.is_array() || each.size() > kMostDims) return {};
    std::vector<int64_t>& shape = shapes.emplace_back();
    for (const Json& dim : each) {
      if (!dim.is_number_integer()) return {};
      shape.push_back(dim.get<int64_t>());
    }
  }
  return shapes;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return shape.empty() ? "a number" : fmt::format("{}", fmt::join(shape, " x "));
}

// "16 x 16384 in place of 4 x 8" where a verdict's inputs have other shapes than a problem's; empty where it names none.
std::string OtherShapes(const KernelBenchVerdict& verdict, const SizedProblem& sized) {
  std::vector<std::vector<int64_t>> given = verdict.input_shapes, expected;
  for (const ConcreteTensor& input : sized.inputs) {
    if (!input.spec.is_param) expected.push_back(input.shape);
  }
  std::sort(given.begin(), given.end());
  std::sort(expected.begin(), expected.end());
  if (given.empty() || given == expected) return "";
  const auto listed = [](const std::vector<std::vector<int64_t>>& shapes) {
    std::vector<std::string> texts;
    std::transform(shapes.begin(), shapes.end(), std::back_inserter(texts), ShapeText);
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  return listed(given) + " in place of " + listed(expected);
}

}  // namespace

KernelBenchVerdict ReadKernelBenchVerdict(const KernelBenchJudgeOptions& options, PythonProcess* process) {
  const auto start = JudgeClock::now();
  std::string line, phase = "start";
  bool is_candidate = false;  // what the process does may be the candidate's doing
  while (true) {
    const double left_s = options.limit_s - std::chrono::duration<double>(JudgeClock::now() - start).count();
    const PythonProcess::Event event = process->Read(std::clamp(left_s, 0.0, kJudgeStopLook_s), &line);
    if (options.stop != nullptr && *options.stop) throw Error(ExitCode::kInterrupted, "interrupted");
    if (event == PythonProcess::Event::kTimedOut) {
      if (left_s > 0) continue;
      return NotJudged(fmt::format("not finished after {:g} s, in phase {}", options.limit_s, phase), true);
    }
    if (event == PythonProcess::Event::kEnded) {
      const std::string how = process->DescribeEnd();
      if (!is_candidate && process->LacksSandbox())
        throw Error(ExitCode::kMachine, "the sandbox of Python cannot be entered: " + how,
                    "run `kevin doctor`");
      return NotJudged("the process " + how + ", in phase " + phase, true);
    }
    const Json answer = Json::parse(line, nullptr, false);
    if (!answer.is_object()) continue;
    if (answer.contains("phase") && answer["phase"].is_string()) {
      phase = Printable(answer["phase"].get<std::string>().substr(0, 20));
      is_candidate = true;
    } else if (answer.contains("error") && is_candidate) {
      return NotJudged("the candidate wrote an error in place of a verdict, in phase " + phase, true);
    } else if (answer.contains("error")) {
      throw Error(ExitCode::kMachine,
                  "KernelBench's method cannot run in this Python: " + Printable(answer.dump()),
                  "set KEVIN_PYTHON to a Python with torch 2.11");
    } else if (answer.contains("compiled")) {
      return KernelBenchVerdictFromJson(answer);
    }
  }
}

Json ToJson(const KernelBenchVerdict& verdict) {
  const auto or_null = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  return {{"compiled", verdict.compiled},
          {"correct", verdict.correct},
          {"reason", verdict.reason.empty() ? Json(nullptr) : Json(verdict.reason)},
          {"trials", verdict.trials},
          {"trials_passed", verdict.trials_passed},
          {"tolerance", verdict.tolerance},
          {"max_difference", verdict.max_difference},
          {"candidate_ms", or_null(verdict.candidate_ms)},
          {"reference_ms", or_null(verdict.reference_ms)},
          {"speedup", or_null(verdict.speedup)},
          {"timed_calls", verdict.timed_calls},
          {"excessive_speedup", verdict.excessive_speedup},
          {"other_shapes", verdict.other_shapes.empty() ? Json(nullptr) : Json(verdict.other_shapes)},
          {"differs", verdict.differs}};
}

KernelBenchVerdict KernelBenchVerdictFromJson(const Json& json) {
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  const auto flag = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_boolean() && found->get<bool>();
  };
  KernelBenchVerdict verdict;
  verdict.compiled = flag("compiled");
  verdict.correct = flag("correct");
  if (json.contains("reason") && json["reason"].is_string())
    verdict.reason = Printable(json["reason"].get<std::string>().substr(0, kMostReason));
  verdict.trials = static_cast<int>(std::clamp(number("trials"), 0.0, 1e6));
  verdict.trials_passed = static_cast<int>(std::clamp(number("trials_passed"), 0.0, 1e6));
  verdict.tolerance = number("tolerance");
  verdict.max_difference = number("max_difference");
  verdict.candidate_ms = number("candidate_ms");
  verdict.reference_ms = number("reference_ms");
  verdict.speedup = number("speedup");
  verdict.timed_calls = static_cast<int>(std::clamp(number("timed_calls"), 0.0, 1e6));
  verdict.excessive_speedup = flag("excessive_speedup");
  if (json.contains("other_shapes") && json["other_shapes"].is_string())
    verdict.other_shapes = Printable(json["other_shapes"].get<std::string>().substr(0, kMostReason));
  if (json.contains("input_shapes")) verdict.input_shapes = InputShapesOf(json["input_shapes"]);
  if (json.contains("differs") && json["differs"].is_array()) {
    for (const Json& each : json["differs"]) {
      if (each.is_string() && verdict.differs.size() < kMostDifferences)
        verdict.differs.push_back(Printable(each.get<std::string>().substr(0, kMostReason)));
    }
  }
  return verdict;
}

KernelBenchVerdict JudgeAsKernelBench(const KernelBenchJudgeOptions& options, const SizedProblem& sized,
                                      const Candidate& candidate, const std::string& own_file) {
  const PythonSetup setup = FindPythonSetup(options.environment.program_directory);
  const Compiled compiled = BuildPython(setup, options.compiler, candidate, false, CompileOptionsOf(options),
                                        options.gpu ? TorchArchitecture(ArchitectureOf(*options.gpu)) : "");
  if (compiled.timed_out) return NotJudged("compiling takes too long", false);
  if (compiled.library.empty()) return NotJudged(compiled.log, false);
  const WorkFolder work(fs::temp_directory_path(), "kevin-kernelbench-");
  fs::copy_file(compiled.library, work.path() / "bundle");
  WriteJudgeFile(work.path() / "reference.py", own_file.empty() ? PythonModel(sized) : own_file);
  PythonSandbox sandbox;
  sandbox.work = work.path();
  sandbox.visible.assign(setup.folders.begin(), setup.folders.end());
  sandbox.visible.push_back(fs::path(setup.script).parent_path());
  sandbox.visible.push_back(fs::path(setup.library).parent_path());
  sandbox.cpu_limit_s = options.limit_s * UsableCpus();
  sandbox.gpu = options.gpu.has_value();
  const std::string script = (fs::path(setup.script).parent_path() / "kernelbench_judge.py").string();
  PythonProcess process({setup.python, "-I", "-B", script}, &sandbox);
  const DeviceLock lock(options.gpu ? DeviceLock::NameOfGpu(options.gpu->pci_bus) : "cpu",
                        LockMode::kExclusive, nullptr, options.stop);
  process.Write(JobText(options, setup, sized, !own_file.empty()));
  KernelBenchVerdict verdict = ReadKernelBenchVerdict(options, &process);
  if (!own_file.empty()) verdict.other_shapes = OtherShapes(verdict, sized).substr(0, kMostReason);
  return verdict;
}

}  // namespace kevin
