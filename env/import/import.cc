#include "env/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "env/error.h"
#include "env/process/spawn.h"

namespace kevin {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStopLook_s = 0.2;
constexpr double kStartLimit_s = 60;  // for the import of torch, in processor time

// Whether it is the home folder or one above it: then it holds what a sandbox hides.
bool HoldsHome(const fs::path& folder) {
  const char* home = std::getenv("HOME");
  std::error_code error;
  const fs::path own = fs::weakly_canonical(home != nullptr && *home != '\0' ? home : "/root", error);
  const fs::path inside = own.lexically_relative(fs::weakly_canonical(folder, error));
  return !inside.empty() && *inside.begin() != "..";
}

// Whether all users of the machine write there, as in /tmp.
bool IsShared(const fs::path& folder) {
  std::error_code error;
  const fs::perms mode = fs::status(folder, error).permissions();
  return (mode & fs::perms::sticky_bit) != fs::perms::none &&
         (mode & fs::perms::others_write) != fs::perms::none;
}

// Whether a file's folder says nothing about what belongs to the file.
bool IsTooWide(const fs::path& folder) { return HoldsHome(folder) || IsShared(folder); }

// The paths of a sandbox, folders before what lies in them.
class VisiblePaths {
 public:
  void Add(const fs::path& path) {
    std::error_code error;
    for (const fs::path& name : {fs::absolute(path, error), fs::canonical(path, error)}) {
      if (!name.empty() && name != "/" && fs::exists(name, error)) found_.insert(name.lexically_normal());
    }
  }
  void AddFolder(const fs::path& folder) {
    if (!IsTooWide(folder)) Add(folder);
  }
  void AddFileOfUser(const fs::path& file) {
    std::error_code error;
    const fs::path own = fs::canonical(file, error);
    for (const fs::path& name : {fs::absolute(file, error), own}) {
      fs::path folder = name.parent_path();
      while (fs::exists(folder / "__init__.py", error) && folder.has_parent_path() &&
             fs::exists(folder.parent_path() / "__init__.py", error))
        folder = folder.parent_path();  // a file of a package imports from all of it
      Add(IsTooWide(folder) ? name : folder);
    }
  }
  std::vector<fs::path> All() const { return {found_.begin(), found_.end()}; }

 private:
  std::set<fs::path> found_;
};

}  // namespace

std::string ImportJobText(const ImportJob& job) {
  Json object = {{"eval", job.eval},
                 {"distribution", job.distribution.empty() ? Json() : Json(job.distribution)},
                 {"small", job.small.empty() ? Json() : Json(job.small)}};
  for (const ImportShape& shape : job.shapes)
    object["shapes"].push_back({{"set", shape.set}, {"symbols", shape.symbols}, {"weight", shape.weight}});
  for (const ImportRange& range : job.dynamic)
    object["dynamic"].push_back({{"name", range.name}, {"low", range.low}, {"high", range.high}});
  if (!job.file.empty()) {
    object["file"] = job.file;
    if (job.any_class) {
      object["any_class"] = true;
      object["class"] = job.class_name;
      object["examples"] = job.example_inputs;
      object["init"] = Json::parse(job.init.empty() ? "{}" : job.init);
      if (!job.dtype.empty()) object["dtype"] = job.dtype;
    }
  } else {
    object["function"] = job.function;
    object["examples"] = job.example_inputs;
    if (!job.folder.empty()) object["folder"] = job.folder;
  }
  if (job.sandboxed) object["sandbox"] = true;
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

fs::path PythonImporter::Script() {
  const fs::path installed = ProgramDirectory().parent_path() / "share/kevin/importer/import_module.py";
  std::error_code error;
  return fs::exists(installed, error) ? installed : fs::path(KEVIN_SOURCE_IMPORTER);
}

PythonImporter::PythonImporter(std::function<void(const std::string&)> on_phase,
                               const std::atomic<bool>* stop, ImportSandbox sandbox, fs::path script)
    : on_phase_(std::move(on_phase)),
      stop_(stop),
      sandbox_(std::move(sandbox)),
      script_(std::move(script)),
      python_(FindPythonTorch({"kevin import", false})) {
  std::error_code error;
  for (const fs::path& path : sandbox_.allow_read) {
    if (!fs::exists(path, error))
      throw Error(ExitCode::kBadRequest,
                  fmt::format("--allow-read {}: there is no such file or folder", path.string()),
                  "check the path");
  }
}

// A process that serves the job: the one that runs, where it sees the same files.
void PythonImporter::Start(const ImportJob& job, double limit_s) {
  const std::vector<std::string> argv = {python_.python.string(), script_.string()};
  if (sandbox_.trust) {
    if (!process_) process_ = std::make_unique<PythonProcess>(argv);
    return;
  }
  VisiblePaths visible;
  for (const std::string& folder : python_.folders) visible.AddFolder(folder);
  visible.AddFolder(python_.python.parent_path());
  visible.AddFolder(script_.parent_path());
  const std::string place = job.function.substr(0, job.function.rfind(':'));
  if (!job.file.empty()) {
    visible.AddFileOfUser(job.file);
  } else if (place.ends_with(".py")) {
    visible.AddFileOfUser(fs::path(job.folder) / place);
  } else {
    visible.AddFolder(job.folder);
  }
  if (!job.example_inputs.empty()) visible.Add(job.example_inputs);
  for (const fs::path& path : sandbox_.allow_read) visible.Add(path);
  if (process_ && visible.All() == visible_) return;
  process_.reset();
  visible_ = visible.All();
  if (!work_) work_ = std::make_unique<WorkFolder>(fs::temp_directory_path(), "kevin-import-");
  const PythonSandbox sandbox{work_->path(), visible_,
                              kStartLimit_s + limit_s * std::thread::hardware_concurrency()};
  process_ = std::make_unique<PythonProcess>(argv, &sandbox);
}

ImportAnswer PythonImporter::Describe(const ImportJob& job, double limit_s) {
  Start(job, limit_s);
  ImportJob asked = job;
  asked.sandboxed = !sandbox_.trust;
  process_->Write(ImportJobText(asked));
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
                                  : fmt::format("it is not finished after {:g} s", limit_s);
      const bool lacks_sandbox = process_->LacksSandbox();
      process_.reset();
      if (lacks_sandbox)
        throw Error(ExitCode::kMachine, "the sandbox for your file cannot be entered: " + how,
                    "--trust runs the file as you run it yourself; kevin doctor says what the sandbox lacks");
      return {{},
              how + ", in phase: " + phase,
              "run the file in Python alone, or give it more time with --limit"};
    }
    Json answer = Json::parse(line, nullptr, false);
    if (!answer.is_object())
      throw Error(ExitCode::kBroken, "the answer of Python is not a JSON object: " + line.substr(0, 200));
    if (answer.contains("phase")) {
      phase = answer["phase"];
      if (on_phase_) on_phase_(phase);
    } else if (answer.value("machine", false)) {
      throw Error(ExitCode::kMachine, python_.python.string() + ": " + answer.value("error", ""),
                  "set KEVIN_PYTHON to a Python with a complete torch 2.11");
    } else if (answer.contains("error")) {
      return {{}, answer.value("error", ""), answer.value("next", "")};
    } else {
      return {std::move(answer), "", ""};
    }
  }
}

}  // namespace kevin
