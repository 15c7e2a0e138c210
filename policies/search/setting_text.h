#pragma once
// Settings in texts. The policy keeps no state: a setting travels in the text that has it, in comments
// `// search: KNOB=value ...` and in the constants that stand for knobs of the text. Pure; any thread.

#include <optional>
#include <string>
#include <vector>

#include "policies/search/write.h"

namespace kevin::search {

// What is known of one setting: an attempt, or a trial of the environment (then the speed-up follows from that of the
// attempt and both times).
struct Tried {
  Setting setting;
  std::optional<double> speedup;  // nullopt: it failed
  bool was_text = false;          // the setting of a text, not of a trial
};

// The settings of earlier attempts that are of these knobs; texts of others are left out.
std::vector<Tried> ReadAttempts(const std::vector<Knob>& knobs, const std::vector<TaskAttempt>& attempts);

// The first lines of a text: the setting, and each knob of the text as a constant, or as a line that declares its values
// beginning with the setting's (at most `declared` of them, in order). A knob of the text that `body` does not mention
// has no line of its own.
std::string KnobLines(const std::vector<Knob>& knobs, const Setting& setting, size_t declared,
                      const std::string& body);

// What is equal in two texts that differ in the record of their setting alone: `// search:` lines left out, knob lines
// as constants of their first values. Any text may be given.
std::string TextWithoutRecord(const std::string& source);

}  // namespace kevin::search
