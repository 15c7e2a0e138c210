#include "env/import/python_importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "env/error.h"
#include "env/process/spawn.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double kStopLook_s = 0.2;

std::string JobText(const ImportJob& job) {
  json object = {{"eval", job.eval},
                 {"distribution", job.distribution.empty() ? json() : json(job.distribution)},
                 {"small", job.small.empty() ? json() : json(job.small)}};
  for (const ImportShape& shape : job.shapes)
    object["shapes"].push_back({{"set", shape.set}, {"symbols", shape.symbols}, {"weight", shape.weight}});
  if (!job.file.empty()) {
    object["file"] = job.file;
  } else {
    object["function"] = job.function;
    object["examples"] = job.example_inputs;
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

fs::path PythonImporter::Script() {
  const fs::path installed = ProgramDirectory().parent_path() / "share/kevin/importer/import_module.py";
  std::error_code error;
  return fs::exists(installed, error) ? installed : fs::path(KEVIN_SOURCE_IMPORTER);
}

PythonImporter::PythonImporter(std::function<void(const std::string&)> on_phase,
                               const std::atomic<bool>* stop, fs::path script)
    : on_phase_(std::move(on_phase)),
      stop_(stop),
      script_(std::move(script)),
      python_(FindPythonTorch(script_, {"kevin import", false})) {}

ImportAnswer PythonImporter::Describe(const ImportJob& job, double limit_s) {
  if (!process_)
    process_ =
        std::make_unique<PythonProcess>(std::vector<std::string>{python_.python.string(), script_.string()});
  process_->Write(JobText(job));
  const auto start = Clock::now();
  std::string line, phase = "start Python";
  while (true) {
    const double left_s = limit_s - std::chrono::duration<double>(Clock::now() - start).count();
    const PythonProcess::Event event = process_->Read(std::min(left_s, kStopLook_s), &line);
    if (stop_ != nullptr && *stop_) throw Error(ExitCode::kInterrupted, "interrupted while importing");
    if (event == PythonProcess::Event::kTimedOut && left_s > 0) continue;
    if (event != PythonProcess::Event::kLine) {
      const std::string how = event == PythonProcess::Event::kEnded
                                  ? "Python " + process_->DescribeEnd()
                                  : fmt::format("it is not done after {:g} s", limit_s);
      process_.reset();
      return {
          {}, how + ", while at: " + phase, "does it run in Python by itself? --limit gives it more time"};
    }
    json answer = json::parse(line, nullptr, false);
    if (!answer.is_object())
      throw Error(ExitCode::kBroken, "Python answers what is no JSON object: " + line.substr(0, 200));
    if (answer.contains("phase")) {
      phase = answer["phase"];
      if (on_phase_) on_phase_(phase);
    } else if (answer.value("machine", false)) {
      throw Error(ExitCode::kMachine, python_.python.string() + ": " + answer.value("error", ""),
                  "name a Python with a whole torch 2.11 in KEVIN_PYTHON");
    } else if (answer.contains("error")) {
      return {{}, answer.value("error", ""), answer.value("next", "")};
    } else {
      return {std::move(answer), "", ""};
    }
  }
}

}  // namespace kevin
