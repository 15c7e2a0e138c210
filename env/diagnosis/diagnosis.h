#pragma once
// Evidence of what limits a candidate that was measured, as plain values. It is collected after the verdict, in runs of
// their own, and enters no time and no verdict. Some of it comes from a process that runs the candidate, which may have
// written what it likes: numbers are bounded and texts filtered where they enter, and a candidate can mislead its own
// author alone. agent/diagnosis_text.h puts it into words.

#include <optional>
#include <string>
#include <vector>

namespace kevin {

// One machine instruction of a hot loop, with its share of all samples (0 to 1).
struct HotInstruction {
  std::string text;  // "vfmadd231ps ymm0,ymm1,YMMWORD PTR [rdx+rax*4]"
  double share = 0;
};

// What the compiler said about a loop at a line of the candidate.
struct VectorNote {
  int line = 0;
  int vector_bytes = 0;  // 0: not vectorised
  std::string reason;    // why not, in Kevin's words; empty: the compiler gave none that is known
};

// The shortest loop with most of the samples in loops; without samples the longest innermost loop.
struct HotLoop {
  int first_line = 0, last_line = 0;  // in the candidate's text; 0: unknown
  double share = 0;                   // of all samples of its threads; 0: not sampled
  int instructions = 0;
  int vector_bits = 0;  // of its widest packed arithmetic; 0: none
  // Instructions by sort. `stack`: that read or write the stack, which is where registers are spilled to.
  int packed = 0, scalar = 0, multiply_adds = 0, loads = 0, stores = 0, stack = 0, gathers = 0, divisions = 0,
      calls = 0;
  std::vector<HotInstruction> excerpt;  // at most kMostExcerpt, around the most sampled one
  std::vector<VectorNote> notes;
};
inline constexpr int kMostExcerpt = 10;

// A part of the kernel between two marks (env/diagnosis/stages.h), as the first thread saw it.
struct StageShare {
  std::string name;
  double share = 0;  // of the time of a call
};

// Where the threads were when they were stopped at random moments; shares of all samples, 0 to 1.
struct ThreadShares {
  int samples = 0;
  double kernel = 0;   // the candidate's own code
  double waiting = 0;  // for other threads
  double math = 0;     // functions of the math library
  double system = 0;   // other system calls
};

// Of the processor's own counters, where the machine has them.
struct HardwareCounters {
  double instructions_per_cycle = 0;
  double cache_misses_per_call = 0;  // of the last level
};

// One launch on a GPU: the share of a call's time, by events between the launches.
struct LaunchTime {
  int index = 0;  // in Evaluation::kernels
  double us = 0;
};

struct Diagnosis {
  int threads = 1;  // of the candidate
  // Microseconds a call: with cold caches as in a verdict; with inputs and outputs in the caches; cold with one
  // thread. By a few calls each: for comparison with each other only.
  std::optional<double> cold_us, warm_us, one_thread_us;
  std::optional<double> page_faults;  // a call
  ThreadShares where;
  std::optional<HotLoop> loop;
  int machine_vector_bits = 0;  // the widest registers of this machine; 0: unknown
  std::vector<StageShare> stages;
  std::string stage_problem;  // why marks gave no times; empty: they did, or there are none
  std::optional<HardwareCounters> counters;
  std::vector<LaunchTime> launches;
  double seconds = 0;  // that the diagnosis took
};

}  // namespace kevin
