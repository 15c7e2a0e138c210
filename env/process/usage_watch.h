#pragma once
// What the processes in a sandbox take of the machine in number: tasks, files and their bytes. Limits of a process
// (rlimits) are not enough: that of tasks does not bind root, and none binds the number of files. The trusted side looks
// from outside, and ends the sandbox where something is over its limit.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace kevin {

struct UsageLimits {
  int64_t tasks = 0;             // threads of all processes in the sandbox; 0: not counted
  std::filesystem::path folder;  // that the sandbox may write to; empty: nothing is counted
  int64_t files = 0;             // in `folder`, folders among them
  int64_t bytes = 0;             // of the files in `folder`
  bool IsAny() const { return tasks > 0 || !folder.empty(); }
};

inline constexpr std::chrono::milliseconds kUsageLook{200};

// One thread.
class UsageWatch {
 public:
  // `process`: the first of a namespace of processes of its own; of another, no tasks are counted.
  UsageWatch(pid_t process, UsageLimits limits);

  // A sentence about what is over its limit, e.g. "it has 4012 threads and processes at a time; 264 are allowed"; empty:
  // nothing. Looks at most every kUsageLook; in between it repeats itself.
  const std::string& Exceeded();

 private:
  std::string Look() const;

  const UsageLimits limits_;
  const std::string namespace_;  // "pid:[4026531836]"; empty: not one of its own
  std::string exceeded_;
  std::chrono::steady_clock::time_point next_look_;
};

}  // namespace kevin
