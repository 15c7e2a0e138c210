#pragma once
// Judging a candidate in Python on a device of host memory (fake_device.cc).

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "env/error.h"
#include "env/gpu/judge/python_judge.h"
#include "env/process/random.h"
#include "env/python/own_kernels.h"
#include "env/python/python_kind.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/env/python/bundle.h"
#include "tests/folders.h"

namespace kevin {

inline std::filesystem::path RedTeam() { return SourceFolder() / "tests/env/python/red_team"; }

// One thread of this process makes all workers.
inline PythonWorkers& HostPython() {
  static const bool kHasDriver = [] {
    LoadDriver();
    UsePrimaryContext(0);
    return true;
  }();
  REQUIRE(kHasDriver);
  static PythonWorkers python = [] {
    PythonSetup setup = FindPythonSetup(BuiltPrograms());
    setup.folders.push_back(BinaryFolder() / "tests/env/fake_device");
    return PythonWorkers(setup, 1, NamespacesAvailable(), GpuOfWorkers{90});
  }();
  return python;
}

inline GpuWorkers& Workers() {
  // Of the 2 GiB that are free on the device few are for workers: filling pools takes time.
  static GpuWorkers workers(HostPython(),
                            {.on_host = true, .kept_bytes = (size_t{2} << 30) - (size_t{384} << 20)});
  return workers;
}

inline std::unique_ptr<GpuPythonSession> NewSession(const Problem& problem,
                                                    const OtherProcesses* others = nullptr,
                                                    GpuWorkers& workers = Workers(), bool alone = false) {
  GpuSessionOptions options;
  options.problem = problem;
  options.others = others;
  options.size = "small";
  options.on_host = true;
  return std::make_unique<GpuPythonSession>(std::move(options), workers, alone);
}

inline GpuPythonSession& SessionOf(const std::string& problem, const OtherProcesses* others = nullptr) {
  static std::map<std::pair<std::string, const OtherProcesses*>, std::unique_ptr<GpuPythonSession>> sessions;
  std::unique_ptr<GpuPythonSession>& session = sessions[{problem, others}];
  if (!session) session = NewSession(LoadProblemFile(problem), others);
  session->base().reference().Activate();
  return *session;
}

inline std::string ShortCallsFile() {
  return (SourceFolder() / "tests/env/cpu/red_team/problems/short_calls.toml").string();
}
inline GpuPythonSession& ShortCalls(const OtherProcesses* others = nullptr) {
  return SessionOf(ShortCallsFile(), others);
}

// A setting of a stand-in (fake_device.cc, fake_nvml.cc).
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

// How many processes are stopped between evaluations: the references. A candidate between its batches is one more. All
// spares are warm afterwards.
inline std::string StoppedProcesses(GpuPythonSession& session) {
  session.workers().Refill();
  session.workers().Settle();
  int stopped = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (std::atoi(entry.path().filename().c_str()) <= 0) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const size_t end = text.rfind(')');
    if (end != std::string::npos && end + 4 < text.size() && text[end + 2] == 'T')
      stopped += std::atoi(text.c_str() + end + 4) == getpid();
  }
  return std::to_string(stopped);
}

struct Asked {
  std::string rules = "open", kind = "modelnew";
  bool verify_only = false, screen = false;
  double timeout_s = 10;
  std::string start = {};  // source
  double evaluation_timeout_s = 60;
  bool first_calls_apart = true;
};

inline JudgeResult Judged(const std::string& source, const Asked& asked = {},
                          GpuPythonSession& session = ShortCalls()) {
  const Fd bundle = BundleOf(source, asked.kind);
  const Fd start = asked.start.empty() ? Fd() : BundleOf(asked.start, asked.kind);
  GpuPythonRequest request;
  request.bundle_fd = bundle.get();
  request.candidate_key = source;
  request.start_bundle_fd = start.get();
  request.start_key = asked.start;
  request.rules = asked.rules;
  request.verify_only = asked.verify_only;
  request.screen = asked.screen;
  request.call_timeout_s = request.examine_timeout_s = asked.timeout_s;
  request.evaluation_timeout_s = asked.evaluation_timeout_s;
  request.first_calls_apart = asked.first_calls_apart;
  request.own_kernels = OwnKernelNames(source);
  JudgeResult result = JudgePythonOnGpu(session, request);
  std::printf("  %-14s %s\n", OutcomeName(result.outcome), Described(result.outcome).c_str());
  std::fflush(stdout);
  return result;
}

inline const std::string kHead =
    "import sys\nimport torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n        self.kept = []\n\n    def forward(self, x):\n";

inline std::string WithForward(const std::string& lines) {
  std::string text = kHead;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    text += "        " + lines.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return text;
}

}  // namespace kevin
