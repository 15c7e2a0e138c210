#pragma once
// The choice of the next setting of a program's knobs, from the results of earlier ones (setting_text.h), from counts of
// work and from related problems. Pure; any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "policies/search/resemble.h"
#include "policies/search/setting_text.h"

namespace kevin::search {

struct Choice {
  Setting setting;
  std::string reason;   // why, for the reader of the kernel
  std::string changed;  // what was tried and why: the summary of the turn
  bool is_new = true;   // false: every setting was tried, this is the fastest
};

// What is known beside the results.
struct Guidance {
  std::vector<double> shares;       // of the time, by stage (LeafStages), by counts of work; may be shorter
  std::vector<std::string> stages;  // their names; may be shorter
  Experience experience;            // of related problems
  bool searches_in_text = false;    // the environment moves the knobs of the text itself: others come first
};

// The shares of the time that the results speak for: a knob whose move changed the time by a factor f belongs to a stage
// with at least 1 - 1/f of it; each move of a stage's knobs without effect takes 30 % off its share by counts. Not
// normalised.
std::vector<double> SharesByResults(const std::vector<Knob>& knobs, const std::vector<Tried>& tried,
                                    const std::vector<double>& by_counts);

// First the settings that experience suggests, the nearest problem's first, then the first values. Then moves from the
// fastest setting: knobs that changed the time most, here or on related problems, and those of stages with the largest
// shares (SharesByResults) come first, near values before far ones; values that occurred only in failures come last.
// `seed` decides the order among equals and occasional jumps: several knobs at once, to values that are not known to be
// slow. At last all other settings, those first whose values were best by themselves: no setting of a text is chosen
// twice while another is left (of more than 16,384 settings, while moves, jumps or one of the first 16,384 are left).
Choice ChooseNext(const std::vector<Knob>& knobs, const std::vector<Tried>& tried, const Guidance& guidance,
                  uint64_t seed);

}  // namespace kevin::search
