#pragma once
// A Python script as a child process, in a sandbox where it runs code that is not to be trusted. Its standard input and
// output are a socket for lines of text; the end of its standard error is kept for messages.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "env/process/spawn.h"

namespace kevin {

// What a sandboxed script may do: read the system's folders and `visible`, write to `work`, its home. It has no network,
// of the environment only what Python and torch read, and of the machine no more than UsageLimitsOfScript. The sandbox
// is that of compilers, with a GPU that of NVIDIA's tools, which needs namespaces (env/sandbox).
struct PythonSandbox {
  std::filesystem::path work;  // a folder that exists
  std::vector<std::filesystem::path> visible;
  double cpu_limit_s = 3600;  // of each of its processes
  bool gpu = false;           // it may use the machine's GPUs
};

// Of code that is built, imported or compiled in `work`: MaxCandidateThreads() tasks (env/sandbox/sandbox.h), 20,000
// files and 8 GiB.
UsageLimits UsageLimitsOfScript(const std::filesystem::path& work);

// The script's exit status where its sandbox could not be entered.
inline constexpr int kNoSandboxStatus = 125;

class PythonProcess {
 public:
  // `argv` starts with the interpreter's path. The script inherits the environment, but numbers CUDA devices
  // as Kevin does and has no library path of a bundle. Without `sandbox` it may do what the user may. The destructor
  // kills it and its children. Throws Error(kBroken), with a sandbox also Error(kMachine).
  explicit PythonProcess(const std::vector<std::string>& argv, const PythonSandbox* sandbox = nullptr);

  // False if the script has closed its side.
  bool Write(const std::string& line);

  enum class Event { kLine, kEnded, kTimedOut };
  // The next line of its output. kTimedOut after `limit_s`; reading may continue. kEnded also where it is over the
  // limits of its sandbox, and was killed.
  Event Read(double limit_s, std::string* line);

  // After kEnded: its exit status and the last line of its standard error, for an Error.
  std::string DescribeEnd();
  // After DescribeEnd: whether its sandbox could not be entered.
  bool LacksSandbox() const { return lacks_sandbox_; }

 private:
  bool TakeLine(std::string* line);

  Fd socket_, errors_;
  ChildProcess process_;
  std::optional<UsageWatch> watch_;  // of a sandbox
  std::string output_, error_text_;
  std::string exceeded_;  // why it was killed for what it took of the machine; empty: it was not
  bool lacks_sandbox_ = false;
};

}  // namespace kevin
