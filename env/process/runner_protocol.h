#pragma once
// What the trusted side tells a fresh runner, once, over the socket it is born with. After that only the
// shared control page is used.

#include <cstdint>
#include <string>
#include <vector>

namespace kevin {

inline constexpr int kRunnerSocket = 3;  // the runner's end, by descriptor number

// Where one argument of `launch` lies for each slot: base + slot * stride.
struct ArgumentPlace {
  bool output = false;  // in the outputs' memory, else in the inputs'
  uint64_t offset = 0;
  uint64_t stride = 0;
};

struct RunnerLoad {
  int slots = 0;
  int64_t inputs_bytes = 0, outputs_bytes = 0;
  int64_t max_memory_bytes = 0;
  double cpu_limit_s = 600;
  std::vector<ArgumentPlace> arguments;
};

// What a process that runs one side gets as its environment: the same threads, waiting passively.
std::vector<std::string> RunnerEnvironment(int threads);
// As RunnerEnvironment, and a bundle's way to torch: for programs of our own.
std::vector<std::string> TrustedEnvironment(int threads);

// The start of a command line that runs a compiler in its sandbox (`kevin-runner exec`); the compiler's own
// words follow.
struct SandboxedCompiler {
  std::string runner;
  bool namespaces = true;
  std::string work_directory;
  int64_t memory_mb = 0, cpu_s = 0;
  std::vector<std::string> shown;  // folders it may read beside the system's
};
std::vector<std::string> CompilerCommand(const SandboxedCompiler& compiler);

// Descriptors that travel with a RunnerLoad, in this order.
enum LoadDescriptor { kControlPageFd, kInputsFd, kOutputsFd, kLibraryFd, kLogFd, kLoadDescriptors };

inline constexpr size_t kLogBytes = 64 << 10;  // the candidate's stdout and stderr; what is over is lost

// One message each way at most. Throw Error(kBroken) when the other side is gone.
void SendLoad(int socket, const RunnerLoad& load, const int (&descriptors)[kLoadDescriptors]);
// False when the other side closed without a message.
bool ReceiveLoad(int socket, RunnerLoad* load, int (*descriptors)[kLoadDescriptors]);

}  // namespace kevin
