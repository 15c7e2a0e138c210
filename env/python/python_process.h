#pragma once
// A Python script as a child process. Its standard input and output are a socket for lines of text; the end
// of its standard error is kept for messages.

#include <optional>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "env/process/spawn.h"

namespace kevin {

class PythonProcess {
 public:
  // `argv` starts with the interpreter's path. The script inherits the environment, but numbers CUDA devices
  // as Kevin does and has no library path of a bundle. The destructor kills it and its children. Throws
  // Error(kBroken).
  explicit PythonProcess(const std::vector<std::string>& argv);

  // False if the script has closed its side.
  bool Write(const std::string& line);

  enum class Event { kLine, kEnded, kTimedOut };
  // The next line of its output. kTimedOut after `limit_s`; reading may continue.
  Event Read(double limit_s, std::string* line);

  // After kEnded: its exit status and the last line of its standard error, for an Error.
  std::string DescribeEnd();

 private:
  bool TakeLine(std::string* line);

  Fd socket_, errors_;
  ChildProcess process_;
  std::string output_, error_text_;
};

}  // namespace kevin
