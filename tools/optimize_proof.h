#pragma once
// Proof of an exported file: a Python process loads it beside the original, compares their outputs on fresh inputs, runs
// torch.library.opcheck and torch.compile(fullgraph=True), and times it against eager and torch.compile
// (export/package/prove.py).

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/json.h"
#include "env/import/import.h"

namespace kevin {

struct ProofRequest {
  std::filesystem::path python, output;  // the interpreter, the exported .py file
  ImportJob import;                      // as the module was imported
  std::string precision = "fp32", device = "cpu";
  std::string lock =
      "cpu";  // name of the device's lock (DeviceLock): shared for the work, exclusive for the times
  bool compile = true;   // also time torch.compile of the original
  double limit_s = 900;  // of all
  std::function<void(const std::string& phase)> on_phase;
  const std::atomic<bool>* stop = nullptr;  // not owned
};

struct Proof {
  std::string failure;  // why it is no replacement; empty: it is
  std::vector<std::string> checks;
  double max_error = 0, tolerance = 0;  // of the magnitude of the outputs
  // Elements from which the original is further off, in float64, were left out of max_error.
  bool rounded = false;
  double eager_us = 0, kernel_us = 0, compiled_us = 0;  // of a call in Python; medians; 0: unknown
  // Ratios with their 99 % intervals: value, low, high. Of calls in Python, with all their overhead.
  std::vector<double> speedup, compile_speedup;  // against eager; against torch.compile, empty: none
  std::string no_compile;                        // why there is no torch.compile
};

// Whether a call in Python gains: the interval of its speed-up against eager lies above 1.
bool IsFasterInPython(const Proof& proof);

// Blocks. A file that fails is the result's `failure`. Throws Error: kBroken where Python ends without an answer or takes
// longer than the limit, kInterrupted after `stop`.
Proof ProveExport(const ProofRequest& request);

}  // namespace kevin
