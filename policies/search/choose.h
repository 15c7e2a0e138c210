#pragma once
// Which setting to try next, from what earlier ones measured. Stateless: settings travel in the kernels'
// first line.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/family.h"

namespace kevin::search {

// `// search: family=scan lanes=full rows=4`, and back; nullopt when `source` has no such line for this
// kernel (another family, or knobs it does not have).
std::string SettingLine(const Kernel& kernel, const Setting& setting);
std::optional<Setting> ReadSetting(const Kernel& kernel, const std::string& source);

struct Choice {
  Setting setting;
  std::string reason;   // a sentence about why
  std::string changed;  // a sentence about what differs from the best so far
};

// The first values first. Then moves around the fastest setting: one knob at a time, most important knob and
// nearest untried value first, the order among equals and now and then a jump decided by `seed`. A setting is
// not tried twice, and values seen only in kernels that failed come last. When all are tried, the fastest
// again.
Choice ChooseNext(const Kernel& kernel, const std::vector<TaskAttempt>& attempts, uint64_t seed);

}  // namespace kevin::search
