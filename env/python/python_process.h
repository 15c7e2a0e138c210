#pragma once
// A Python script as a child process that is talked to in lines: its standard input and output are one
// socket, the end of what it writes to standard error is kept for messages.

#include <optional>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

class PythonProcess {
 public:
  // `argv` starts with the interpreter's path. It gets this process's own environment, CUDA's devices in the
  // order that Kevin counts them in, and no library path of a bundle's. Killed, with what it started, when
  // this is destroyed. Throws Error(kBroken).
  explicit PythonProcess(const std::vector<std::string>& argv);

  // False when the other side is gone.
  bool Write(const std::string& line);

  enum class Event { kLine, kEnded, kTimedOut };
  // The next line of its output. What takes longer than `limit_s` is timed out; it may be read on then.
  Event Read(double limit_s, std::string* line);

  // After kEnded: how it ended and the last line that it wrote to standard error, for an Error.
  std::string DescribeEnd();

 private:
  bool TakeLine(std::string* line);

  Fd socket_, errors_;
  ChildProcess process_;
  std::string output_, error_text_;
};

}  // namespace kevin
