#include "env/gpu/examine/examiner.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

#include "env/error.h"
#include "env/gpu/examine/examine_job.h"
#include "env/gpu/runner/device_memory.h"
#include "env/problem/text.h"
#include "env/process/files.h"
#include "env/process/find_program.h"
#include "env/process/runner_protocol.h"
#include "env/process/spawn.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

constexpr std::string_view kMark = "========= ";
constexpr int kMostLines = 6;

bool Starts(std::string_view line, std::string_view with) { return line.substr(0, with.size()) == with; }

// "ERROR SUMMARY: 3 errors", "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
int CountIn(const std::string& line) { return std::atoi(line.c_str() + line.find(": ") + 2); }

// "    at relu(float *, long)+0x120 in candidate.cu:4" -> 4
int LineIn(const std::string& text, const std::string& source_name) {
  const size_t at = text.find(source_name + ":");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + source_name.size() + 1);
}

// The host's call stack, the failures that follow from the first one and the tool's own limits say nothing
// about the candidate.
bool IsAside(std::string_view text) {
  return text.find("Host Frame") != std::string_view::npos ||
         text.find("Saved host backtrace") != std::string_view::npos ||
         text.find("Maximum number of hazards") != std::string_view::npos ||
         text.find("Target application returned an error") != std::string_view::npos ||
         text.find("Program hit ") != std::string_view::npos;
}

}  // namespace

CheckReport ReadCheckReport(const std::string& tool, const std::string& output,
                            const std::string& source_name) {
  CheckReport report;
  report.tool = tool;
  std::istringstream lines(output);
  int kept = 0;
  bool first_over = false;
  for (std::string line; std::getline(lines, line);) {
    if (!Starts(line, kMark)) continue;
    const std::string text = line.substr(kMark.size());
    if (text.find("SUMMARY: ") != std::string::npos) {
      report.errors = CountIn(text);
      continue;
    }
    if (Starts(text, "COMPUTE-SANITIZER") || text.find_first_not_of(" \t\r") == std::string::npos) {
      first_over = first_over || kept > 0;
      continue;
    }
    if (first_over || kept >= kMostLines || IsAside(text)) continue;
    if (report.line == 0) report.line = LineIn(text, source_name);
    report.finding += (kept++ > 0 ? "\n" : "") + text.substr(text.find_first_not_of(' '));
  }
  return report;
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kCudaSourceName = "candidate.cu";  // in the machine code's line table
constexpr const char* kReport = "report.ncu-rep";
constexpr size_t kMostOutput = size_t{8} << 20;

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteFile(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush())
    throw Error(ExitCode::kBroken, "cannot write " + path.string() + ": " + std::strerror(errno),
                "free space");
}

fs::path RequireTool(const std::string& name) {
  const fs::path tool = Examiner::FindTool(name);
  if (!tool.empty()) return tool;
  throw Error(ExitCode::kMachine, name + " is not on this machine",
              "it comes with the CUDA toolkit: install it, or set KEVIN_CUDA to the toolkit's folder");
}

std::vector<fs::path> ToolFolders() {
  std::vector<fs::path> folders = FoldersOfPath();
  for (const char* variable : {"CUDA_HOME", "KEVIN_CUDA"}) {
    if (const char* root = std::getenv(variable); root && *root)
      folders.insert(folders.begin(), fs::path(root) / "bin");
  }
  folders.emplace_back("/usr/local/cuda/bin");
  return folders;
}

ExamineJob JobFor(const SizedProblem& sized, const std::string& plan, const ExaminerOptions& options) {
  ExamineJob job;
  job.plan = plan;
  job.trusted_cubin = ReadFile(options.trusted_cubin);
  const SlotLayout layout = LayOutSlots(sized, 1);
  for (const ArgumentPlace& place : layout.arguments) {
    ExaminedArgument& argument = job.arguments.emplace_back();
    for (size_t i = 0; i < layout.tensors.size(); ++i) {
      const ArgumentPlace& tensor = layout.tensors[i];
      if (tensor.output != place.output || tensor.offset < place.offset ||
          tensor.offset >= place.offset + place.stride)
        continue;
      const bool output = i >= sized.inputs.size();
      const ConcreteTensor& t = output ? sized.outputs[i - sized.inputs.size()] : sized.inputs[i];
      const auto offset = static_cast<int64_t>(tensor.offset - place.offset);
      argument.bytes = std::max(argument.bytes, offset + t.bytes);
      if (output) continue;
      argument.fills.push_back({offset, t.elements, DrawingOf(t, options.inputs, 0), ""});
      if (t.spec.stored) argument.fills.back().stored = *t.spec.stored;
    }
  }
  return job;
}

}  // namespace

struct Examiner::Outcome {
  std::string output;
  std::string fault;  // the driver's words when the call failed
  int status = 0;
};

fs::path Examiner::FindTool(const std::string& name) {
  const fs::path found = FindProgram(name, ToolFolders());
  std::error_code error;
  const fs::path real = fs::canonical(found, error);
  return error ? fs::path() : real;
}

std::vector<std::string> Examiner::Target() const {
  return {fs::canonical(options_.program).string(), "run", std::to_string(options_.device)};
}

Examiner::Outcome Examiner::RunIn(const WorkFolder& work, const std::vector<std::string>& command,
                                  bool on_device) const {
  const fs::path program = fs::canonical(options_.program);
  std::set<fs::path> shown = {program.parent_path()};
  if (const fs::path libraries = program.parent_path().parent_path() / "lib"; fs::is_directory(libraries))
    shown.insert(libraries);
  // The files of a tool lie in the folder above its own; those of ncu often under /opt/nvidia.
  const fs::path tool = command.front();
  shown.insert(tool.parent_path().parent_path());
  if (fs::is_directory("/opt/nvidia")) shown.insert("/opt/nvidia");
  SpawnOptions spawn;
  spawn.namespaces = options_.namespaces;
  spawn.argv = {program.string(), "enter", options_.namespaces ? "namespaces" : "plain",
                work.path().string()};
  for (const fs::path& folder : shown) {
    if (folder != "/usr" && *std::next(folder.begin()) != "usr")
      spawn.argv.insert(spawn.argv.end(), {"--show", folder.string()});
  }
  spawn.argv.emplace_back("--");
  spawn.argv.insert(spawn.argv.end(), command.begin(), command.end());
  const std::string home = options_.namespaces ? kSandboxWorkPath : work.path().string();
  spawn.environment = {"LC_ALL=C",       "PATH=/usr/bin:/bin",   "HOME=" + home,
                       "TMPDIR=" + home, "CUDA_CACHE_DISABLE=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"};
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"}) {
    if (const char* value = std::getenv(name)) spawn.environment.push_back(std::string(name) + "=" + value);
  }
  const Ran ran = RunToEnd(std::move(spawn), options_.timeout_s, kMostOutput);
  if (ran.timed_out) {
    throw Error(
        ExitCode::kMachine,
        fmt::format("{} did not finish within {:.0f} s", tool.filename().string(), options_.timeout_s),
        on_device ? "try a smaller --size" : "");
  }
  return {Printable(ran.output), Printable(ReadFile(work.path() / kExamineFaultFile)), ran.status};
}

std::string Examiner::Disassemble(const std::string& cubin) const {
  const WorkFolder work(options_.work_directory, "examine");
  WriteFile(work.path() / "candidate.cubin", cubin);
  const Outcome outcome =
      RunIn(work, {RequireTool("nvdisasm").string(), "-c", "-g", "candidate.cubin"}, false);
  if (outcome.status != 0)
    throw Error(ExitCode::kMachine, "nvdisasm: " + DescribeStatus(outcome.status) + "\n" + outcome.output);
  return outcome.output;
}

CheckReport Examiner::Check(const std::string& tool, const SizedProblem& sized,
                            const std::string& plan) const {
  const WorkFolder work(options_.work_directory, "examine");
  ExamineJob job = JobFor(sized, plan, options_);
  job.untouched_memory = tool == "initcheck";
  WriteFile(work.path() / kExamineJobFile, ExamineJobToText(job));
  std::vector<std::string> command = {RequireTool("compute-sanitizer").string(), "--tool", tool,
                                      "--print-limit", "1"};
  for (std::string& word : Target()) command.push_back(std::move(word));
  const Outcome outcome = RunIn(work, command, true);
  if (outcome.output.find("SUMMARY: ") == std::string::npos) {
    throw Error(ExitCode::kMachine,
                "compute-sanitizer does not work on this machine: " + outcome.output.substr(0, 600),
                "leave the check out");
  }
  return ReadCheckReport(tool, outcome.output, kCudaSourceName);
}

std::string Examiner::Profile(const SizedProblem& sized, const std::string& plan,
                              const fs::path& report) const {
  const WorkFolder work(options_.work_directory, "examine");
  WriteFile(work.path() / kExamineJobFile, ExamineJobToText(JobFor(sized, plan, options_)));
  const std::string ncu = RequireTool("ncu").string();
  std::vector<std::string> command = {ncu,   "--clock-control", "none",         "--profile-from-start",
                                      "off", "--metrics",       CounterNames(), "-f",
                                      "-o",  "report"};
  for (std::string& word : Target()) command.push_back(std::move(word));
  const Outcome measured = RunIn(work, command, true);
  if (!fs::exists(work.path() / kReport)) {
    const bool forbidden = measured.output.find("ERR_NVGPUCTRPERM") != std::string::npos;
    throw Error(ExitCode::kMachine,
                "Nsight Compute gave no counters: " + measured.output.substr(0, 600) + measured.fault,
                forbidden
                    ? "let users read the counters (driver option NVreg_RestrictProfilingToAdminUsers=0)"
                    : "run without --profile");
  }
  if (!report.empty()) {
    std::error_code error;
    fs::copy_file(work.path() / kReport, report, fs::copy_options::overwrite_existing, error);
    if (error)
      throw Error(ExitCode::kBadRequest, "cannot write " + report.string() + ": " + error.message(),
                  "give --profile another file");
  }
  const Outcome table = RunIn(work, {ncu, "--import", kReport, "--csv", "--page", "raw"}, false);
  return CounterSentences(table.output);
}

std::string Examiner::Print(const SizedProblem& sized, const std::string& plan) const {
  const WorkFolder work(options_.work_directory, "examine");
  WriteFile(work.path() / kExamineJobFile, ExamineJobToText(JobFor(sized, plan, options_)));
  const Outcome outcome = RunIn(work, Target(), true);
  std::string text = outcome.output;
  if (!outcome.fault.empty()) {
    text += outcome.fault + "\n";
  } else if (outcome.status != 0) {
    text += "the call ended: " + DescribeStatus(outcome.status) + "\n";
  }
  return text;
}

}  // namespace kevin
