#pragma once
// The choice of the next setting of a program's knobs. The policy keeps no state: settings travel in the texts, in a
// comment `// search: KNOB=value ...` and in the constants that stand for knobs. Pure; any thread.

#include <cstdint>
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

struct Choice {
  Setting setting;
  std::string reason;   // why, one sentence
  std::string changed;  // the difference from the best setting so far, one sentence
  bool is_new = true;   // false: everything was tried, this is the fastest again
};

// First the first values. Then moves from the fastest setting: knobs that changed the time most, and those of stages
// with the largest `shares` of the time (by stage; may be shorter than the list), come first, near values before far
// ones; values that occurred only in failures come last. `seed` decides the order among equals and occasional jumps of
// several knobs. `searches_in_text`: the environment moves the knobs of the text itself, so that other knobs come first.
// No setting of a text is chosen twice while another is left.
Choice ChooseNext(const std::vector<Knob>& knobs, const std::vector<Tried>& tried,
                  const std::vector<double>& shares, bool searches_in_text, uint64_t seed);

// The first lines of a text: the setting, and each knob of the text as a constant, or as a line that declares its values
// beginning with the setting's (at most `declared` of them, in order).
std::string KnobLines(const std::vector<Knob>& knobs, const Setting& setting, size_t declared);

}  // namespace kevin::search
