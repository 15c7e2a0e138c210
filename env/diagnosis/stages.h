#pragma once
// Parts of a kernel that its author marks, to learn how long each takes. A comment line of its own between two
// statements begins a stage:
//
//     // stage pack
//     // stage multiply
//
// (`#` in Python). In a verdict the marks are comments. In a diagnosis they become calls of a timer: the
// time from one mark to the next, or to the end of `launch` or `forward`, belongs to the stage, in the thread that called
// it. Pure; any thread.

#include <optional>
#include <string>
#include <vector>

#include "env/diagnosis/diagnosis.h"

namespace kevin {

inline constexpr int kMostStages = 16;
inline constexpr int kMostStageNameBytes = 24;  // letters, digits, '_', '-' and '.'

// The same lines, with `kevin_stages::Mark(k);` in place of the marks. No stages: the text is unchanged. Marks of one
// name are one stage; further ones than kMostStages and other names are left as they are.
struct MarkedSource {
  std::string text;
  std::vector<std::string> names;
};
MarkedSource MarkStages(const std::string& source);

// The names of the marks of a text in Python, in the order of their first marks. env/python/stage_timer.py puts the timer in
// their places, and writes lines that ReadStageTimes reads.
std::vector<std::string> StageNamesInPython(const std::string& source);

// What stands above and below a marked C++ text: the timer, and a `launch` of the given signature that calls that of the
// candidate. The timer writes its sums to stderr, in lines that ReadStageTimes reads.
std::string StageTimerAbove();
std::string StageTimerBelow(const std::string& launch_signature);

// The last complete line of a log with as many numbers as stages, as shares of a call. Empty: there is none. A part
// before the first mark has the name "(before the first)", if it takes a hundredth or more.
std::vector<StageShare> ReadStageTimes(const std::string& log, const std::vector<std::string>& names);

}  // namespace kevin
