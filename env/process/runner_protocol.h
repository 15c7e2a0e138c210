#pragma once
// How the trusted side starts and loads a runner: its environment, its command line, the one message that it
// receives, and the layout of the memory that both map. After the message only the shared control page is
// used.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

// --- The process ---

inline constexpr int kRunnerSocket = 3;  // the runner's descriptor of its socket

// The environment of a timed process: this number of threads, which wait passively.
std::vector<std::string> RunnerEnvironment(int threads);
// RunnerEnvironment, the library path of a bundle and the folder of the device locks: for Kevin's own programs.
std::vector<std::string> TrustedEnvironment(int threads);

// A compiler that runs in its sandbox (`kevin-runner exec`).
struct SandboxedCompiler {
  std::string runner;
  bool namespaces = true;
  std::string work_directory;
  int64_t memory_mb = 0, cpu_s = 0;
  std::vector<std::string> shown;  // readable folders, files and links beside the system's
  int64_t file_mb = 256;           // size of any one file that it writes
};
// The start of its command line; the compiler and its arguments follow.
std::vector<std::string> CompilerCommand(const SandboxedCompiler& compiler);

// --- The memory ---

// The address of one argument of `launch` in each slot: base + offset + slot * stride.
struct ArgumentPlace {
  bool output = false;  // in the memory of the outputs, else of the inputs
  bool inout = false;   // an input-output, in the memory of the outputs
  uint64_t offset = 0;
  uint64_t stride = 0;
};

inline constexpr int64_t kSlotPage = 4096;

// The tensors of all slots in the two shared memories; the same on a CPU and on a GPU. Each tensor starts on
// a new page, also a parameter block (env/problem/problem.h). Outputs and input-outputs have a guard page on both sides;
// input-outputs lie behind all outputs.
struct SlotLayout {
  // The problem's inputs and parameters, then its outputs. An input-output has the same place in both.
  std::vector<ArgumentPlace> tensors;
  std::vector<ArgumentPlace> arguments;  // the same memory as arguments of `launch` (SizedProblem::arguments)
  int64_t inputs_bytes = 0, outputs_bytes = 0;  // of all slots
  int64_t inouts_begin = 0;                     // in the memory of the outputs
  int64_t inouts_bytes() const { return outputs_bytes - inouts_begin; }
};
SlotLayout LayOutSlots(const SizedProblem& problem, int slots);
// On a CPU a candidate's process maps each input and input-output of each slot on its own, so that the kernel shows which of them were
// touched (env/cpu/audit.h). The most slots of which that is possible.
int MostSlotsMappedApart(const SizedProblem& problem);
// Between two of these mappings lie pages of zeros. A large one keeps its place in 2 MiB pages.
int64_t GapBetweenInputs(const ArgumentPlace& place);

// Of one slot, in whole pages, without guard pages. Input-outputs count as outputs.
int64_t SlotInputBytes(const SizedProblem& problem);
int64_t SlotOutputBytes(const SizedProblem& problem);

inline constexpr int kMaxSlotsOnGpu = 6;

// The number of slots for this problem, from 2 to kMaxSlotsOnGpu: together they take 8 GiB where that is more than
// two, so that sessions of several problems fit on a GPU side by side. The contents of a slot are drawn anew for each
// call, so that a candidate gains nothing by few of them.
int PreferredSlotsOnGpu(const SizedProblem& problem);

// `reference_bytes` of the functions below: what the reference's own tensors and the truth of this problem were seen to take
// while a candidate was judged; 0: not seen yet.

// The preferred number of slots, or as many of them as fit, at least 1. Where none fits: Error(kBadRequest) with a
// size of the problem that does, or Error(kMachine) if there is none.
int SlotsOnGpu(const SizedProblem& problem, size_t free_bytes, int64_t reference_bytes = 0);

// The same for candidates in Python, which are timed in batches of a call on each slot: at most kMostPythonSlotsOnGpu. A slot
// takes its inputs three times (the session's, the reference worker's, the candidate's). Many: a batch has noise of its own,
// and is to be long against it.
inline constexpr int kMostPythonSlotsOnGpu = 256;
int PythonSlotsOnGpu(const SizedProblem& problem, size_t free_bytes);

// Free bytes of the GPU that all preferred slots take, with the reference's own tensors and the truth. Where these were not
// seen, more than most problems need: the evaluator drops other sessions for it.
int64_t SessionBytesOnGpu(const SizedProblem& problem, int64_t reference_bytes = 0);
// The least with which a candidate can be judged: with one slot, and what elementwise problems need beside it.
int64_t LeastSessionBytesOnGpu(const SizedProblem& problem);
// The part that the reference's tensors and the truth take while a candidate is judged.
int64_t ReferenceBytesOnGpu(const SizedProblem& problem, int64_t reference_bytes = 0);

// --- The message ---

struct RunnerLoad {
  int slots = 0;
  int64_t inputs_bytes = 0, outputs_bytes = 0;
  int64_t inouts_begin = 0;  // SlotLayout's
  int64_t max_memory_bytes = 0;
  double cpu_limit_s = 600;
  std::vector<ArgumentPlace> arguments;
};

// The descriptors that are sent with a RunnerLoad, in this order.
enum LoadDescriptor { kControlPageFd, kInputsFd, kOutputsFd, kLibraryFd, kLogFd, kLoadDescriptors };

inline constexpr size_t kLogBytes = 64 << 10;  // of the candidate's stdout and stderr; the rest is lost

// At most one message each way. Throws Error(kBroken) when the other side has closed.
void SendLoad(int socket, const RunnerLoad& load, const int (&descriptors)[kLoadDescriptors]);
// False when the other side closed without a message.
bool ReceiveLoad(int socket, RunnerLoad* load, int (*descriptors)[kLoadDescriptors]);

}  // namespace kevin
