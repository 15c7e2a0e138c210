#include "tools/optimize_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "env/error.h"
#include "env/process/machine.h"
#include "env/python/python_process.h"
#include "tools/export/torch_package.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStopLook_s = 0.2;

std::string RequestLine(const ProofRequest& request) {
  const Json job = {{"output", request.output.string()},
                    {"importer", PythonImporter::Script().parent_path().string()},
                    {"import", Json::parse(ImportJobText(request.import))},
                    {"precision", request.precision},
                    {"device", request.device},
                    {"compile", request.compile}};
  return job.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Proof ReadProof(const Json& answer) {
  Proof proof;
  proof.failure = answer.value("error", "");
  if (!proof.failure.empty()) return proof;
  proof.checks = answer.at("checks").get<std::vector<std::string>>();
  proof.max_error = answer.at("max_error"), proof.tolerance = answer.at("tolerance");
  proof.rounded = answer.at("rounded");
  proof.eager_us = answer.at("eager_us"), proof.kernel_us = answer.at("kernel_us");
  proof.compiled_us = answer.value("compiled_us", 0.0);
  proof.speedup = answer.at("speedup").get<std::vector<double>>();
  if (answer.at("compile_speedup").is_array())
    proof.compile_speedup = answer["compile_speedup"].get<std::vector<double>>();
  if (answer.at("no_compile").is_string()) proof.no_compile = answer["no_compile"];
  return proof;
}

}  // namespace

bool IsFasterInPython(const Proof& proof) { return proof.speedup.size() > 1 && proof.speedup[1] > 1; }

Proof ProveExport(const ProofRequest& request) {
  std::optional<DeviceLock> lock;
  lock.emplace(request.lock, LockMode::kShared, nullptr, request.stop);
  PythonProcess process({request.python.string(), (PackageParts() / "prove.py").string()});
  process.Write(RequestLine(request));
  const auto start = Clock::now();
  std::string line, phase = "start Python";
  while (true) {
    const double left_s = request.limit_s - std::chrono::duration<double>(Clock::now() - start).count();
    const PythonProcess::Event event = process.Read(std::clamp(left_s, 0.0, kStopLook_s), &line);
    if (request.stop != nullptr && *request.stop)
      throw Error(ExitCode::kInterrupted, "interrupted while the exported file was proved");
    if (event == PythonProcess::Event::kTimedOut && left_s > 0) continue;
    if (event != PythonProcess::Event::kLine) {
      throw Error(
          ExitCode::kBroken,
          fmt::format("the proof of the exported file: {}, in phase: {}",
                      event == PythonProcess::Event::kEnded
                          ? "Python " + process.DescribeEnd()
                          : fmt::format("it is not finished after {:g} s", request.limit_s),
                      phase),
          "run the same command again; kevin export --as torch-package writes the file without a proof");
    }
    const Json answer = Json::parse(line, nullptr, false);
    if (!answer.is_object())
      throw Error(ExitCode::kBroken, "the answer of Python is not a JSON object: " + line.substr(0, 200));
    if (answer.contains("wait")) {
      lock.reset();
      lock.emplace(request.lock, LockMode::kExclusive, nullptr, request.stop);
      process.Write("go");
      continue;
    }
    if (!answer.contains("phase")) {
      try {
        return ReadProof(answer);
      } catch (const Json::exception& error) {
        throw Error(ExitCode::kBroken, std::string("Python's answer lacks a part: ") + error.what());
      }
    }
    phase = answer["phase"];
    if (request.on_phase) request.on_phase(phase);
  }
}

}  // namespace kevin
