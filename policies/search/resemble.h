#pragma once
// How much two problems resemble each other, by the stages of their programs; and settings of knobs taken over from
// one to another. Pure; any thread.

#include <map>
#include <string>
#include <vector>

#include "policies/search/write.h"

namespace kevin::search {

// A stage's form (StageForm) in the numbers that are compared.
struct StageTraits {
  std::string form;
  std::string kind;                  // of the stage: pointwise, reduction, ...
  std::map<std::string, int> words;  // operations and types, with how often they occur
  double log2_points = 0;            // of the product of its loops' extents
};

// Of a form; one that is no StageForm gives traits that resemble nothing.
StageTraits TraitsOf(const std::string& form);

// 0 to 1: 0 for different kinds of stages, 1 for equal forms, 0.99 at most for others. Half of it counts common
// operations, 0.3 the ratio of the sizes (a factor of 16 halves it), the rest the kind.
double Likeness(const StageTraits& a, const StageTraits& b);

// The stages of a program with their shares of the time.
struct ProgramTraits {
  std::vector<StageTraits> stages;
  std::vector<double> shares;  // SharesByCounts
};
ProgramTraits TraitsOf(const Program& program, const std::vector<double>& shares);

// The mean, over the stages of both by their shares, of the likeness to the most similar stage of the other program.
double Likeness(const ProgramTraits& a, const ProgramTraits& b);

// --- Settings of related problems ---

// A setting to begin with, and where it comes from.
struct Suggestion {
  Setting setting;     // a value for every knob
  std::string origin;  // "level1/21 (91 % alike)"
};

// What related problems say of these knobs.
struct Experience {
  std::vector<Suggestion> suggestions;  // the nearest problem first, different settings, two at most
  std::map<std::string, double>
      influence;  // by knob: how much the time changed there with it, as |log ratio|
};

// A knob of the related text stands for one of `knobs` with the same name (without the number of a stage) and role whose
// stage is the most similar, above kLeastLikeness; its value is mapped to the nearest that the knob has. Knobs without
// such a counterpart keep their first values.
inline constexpr double kLeastLikeness = 0.5;
Experience ExperienceOf(const Program& program, const std::vector<Knob>& knobs,
                        const std::vector<TaskRelated>& related);

// "TILE" of "TILE_3".
std::string WithoutStageNumber(const std::string& knob);

}  // namespace kevin::search
