#pragma once
// How long a kernel must be delayed to be slower by a wanted share, found by measuring.

#include <functional>

namespace kevin {

struct CalibratedDelay {
  int steps = 0;
  double slowdown = 0;  // as measured at `steps`; 0.03: 3 % slower
  int probes = 0;
  bool is_reached = false;  // `slowdown` is within kDelayTolerance of the wanted share
};

constexpr double kDelayTolerance = 0.1;  // of the share

// `slowdown_of` measures the slow-down of a number of steps. It should grow with the steps, in whatever shape
// (a memory-bound kernel hides the first ones), from 0 at none. Doubles from 32 steps until the share is
// passed, then narrows down; gives up after 12 probes, or between two neighbouring numbers, with the nearest
// it saw. Throws what `slowdown_of` throws.
CalibratedDelay CalibrateDelay(double share, const std::function<double(int)>& slowdown_of);

}  // namespace kevin
