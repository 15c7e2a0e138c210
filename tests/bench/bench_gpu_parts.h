#pragma once
// The parts of bench_gpu. Each adds rows to `figures` as they are known; all throw Error when the GPU or an
// evaluation breaks.

#include "env/environment.h"
#include "tests/bench/bench_figures.h"

namespace kevin {

// Whole turns after generation, wall clock: correct candidates (the search policy's first kernel, `repeats`
// texts never seen before), wrong ones and ones that do not compile (5 each), problem by problem at size
// full.
void BenchTurns(Environment* environment, int repeats, Figures* figures);

// Compile times of `repeats` distinct texts of each kind. Needs no GPU.
void BenchCompile(int repeats, Figures* figures);

// A kernel against itself, and against itself slowed down by a share that is first calibrated by measuring,
// at three kernel times; and a kernel of eager's own form against eager. `only`: "5us", "50us", "1ms", or ""
// for all.
void BenchClock(Environment* environment, int repeats, const std::string& only, Figures* figures);

// Correct level1/19 candidates one after another for `seconds`, while another thread keeps a compile farm
// busy.
void BenchThroughput(Environment* environment, double seconds, Figures* figures);

struct PrepareChoice {
  std::string suite = "level1,level2";
  std::string from;  // begin with this one; empty: with the first
  std::string size = "full";
  double seconds = 0;  // begin no further problem after so many; 0: no limit
};

// Reference, inputs and fp64 truth of every problem, once: how long it takes and what is then in use. One
// that does not fit or that torch cannot do is a row too. Names the slowest ten.
void BenchPrepare(Environment* environment, const PrepareChoice& choice, Figures* figures);

}  // namespace kevin
