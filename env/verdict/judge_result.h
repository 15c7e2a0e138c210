#pragma once
// What an evaluator's judge comes to, on any device.

#include <cstdint>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

// Thrown inside a judge when a candidate's fate is decided.
struct Ended {
  Outcome outcome;
};

struct JudgeResult {
  Outcome outcome;
  double verify_s = 0, measure_s = 0, wait_s = 0;  // wait_s: for the device's lock
  double device_s = 0;                             // how long a GPU was held
  double peak_gb_per_s = 0, peak_gflop_per_s = 0;  // of a GPU, at the problem's size
  std::vector<uint64_t> seeds;
  std::vector<Sample> samples;
  std::string log;  // what the candidate printed
};

}  // namespace kevin
