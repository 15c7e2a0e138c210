#pragma once
// The fixed parts of a stand-alone file, as source text.

namespace kevin {

extern const char kStandaloneCommon[];  // inputs, steps and the rule of right and wrong; for both kinds
extern const char kStandaloneCuda[];    // what runs it on a GPU, up to main
extern const char kStandaloneCpu[];     // the same on a CPU
extern const char kStandaloneCpuReport[];
extern const char kStandaloneCudaMachine[];  // runs and times it, after its buffers
extern const char kStandaloneCpuMachine[];
extern const char kStandaloneMain[];  // last; the same for both

}  // namespace kevin
