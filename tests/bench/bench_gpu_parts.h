#pragma once
// The parts of bench_gpu. Each adds rows to `figures` as they are known; all throw Error when the GPU or an
// evaluation fails.

#include <functional>
#include <string>

#include "env/environment.h"
#include "tests/bench/bench_figures.h"

namespace kevin {

// Whole turns after generation, wall clock, problem by problem at size full: `repeats` correct candidates
// (the search policy's first kernel in new texts), 5 incorrect ones, 5 that do not compile.
void BenchTurns(Environment* environment, int repeats, BenchFigures* figures);

// Compile times of `repeats` distinct texts of each kind. Needs no GPU.
void BenchCompile(int repeats, BenchFigures* figures);

// A kernel against itself, and against itself slowed down by a share that is first calibrated by measuring,
// at three kernel times; and a kernel of eager's own form against eager. `only`: "5us", "50us", "1ms", or ""
// for all.
void BenchClock(Environment* environment, int repeats, const std::string& only, BenchFigures* figures);

struct CalibratedDelay {
  int steps = 0;
  double slowdown = 0;  // as measured at `steps`; 0.03: 3 % slower
  int probes = 0;
  bool is_reached = false;  // `slowdown` is within kDelayTolerance of the wanted share
};

constexpr double kDelayTolerance = 0.1;  // of the share

// The number of steps by which a kernel is slower by `share`, found by measuring. `slowdown_of` measures the
// slow-down of a number of steps: 0 at 0 steps, growing with the steps in any shape (a memory-bound kernel
// hides the first ones). Doubles from 32 steps until the share is passed, then narrows the bracket; stops
// after 12 probes, or between two adjacent numbers, with the nearest result. Throws what `slowdown_of`
// throws.
CalibratedDelay CalibrateDelay(double share, const std::function<double(int)>& slowdown_of);

// Correct level1/19 candidates one after another for `seconds`, while another thread keeps a compile farm
// busy.
void BenchThroughput(Environment* environment, double seconds, BenchFigures* figures);

struct PrepareChoice {
  std::string suite = "level1,level2";
  std::string from;  // start at this problem; empty: at the first
  std::string size = "full";
  double seconds = 0;  // start no further problem after this time; 0: no limit
};

// Reference, inputs and fp64 truth of every problem, once: the time and the memory. A problem that does not
// fit or that torch cannot compute is a row too. Names the slowest ten.
void BenchPrepare(Environment* environment, const PrepareChoice& choice, BenchFigures* figures);

// Candidates in Python: eager as a candidate against eager, the same with 5 % more work, the device time of one kernel as
// `cuda` and as `modelnew`, and what a turn costs. `at`: one kernel time only. Prints a note after each turn. Needs a Python
// with torch and CUDA (KEVIN_PYTHON).
void BenchPython(Environment* environment, int repeats, const std::string& at, BenchFigures* figures);

}  // namespace kevin
