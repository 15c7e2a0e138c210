#pragma once
// From Nsight Compute's table of counters to sentences for people and policies. Pure.

#include <string>
#include <vector>

namespace kevin {

// The counters to ask for, in one comma-separated list.
std::string CounterNames();

// `csv` is what `ncu --csv --page raw` prints (other lines around it are skipped): a row a launch. Launches
// of one kernel are taken together; at most three kernels, the longest first. Empty when there is no table.
std::string CounterSentences(const std::string& csv);

}  // namespace kevin
