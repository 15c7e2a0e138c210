#pragma once
// START HERE for knobs. A candidate may leave integers of its text open:
//
//   // knob TILE: 64 128 256        kinds cpp, cuda and ptx; `# knob TILE: 64 128 256` in Python kinds
//
// a comment line of its own that declares NAME as an integer constant of the text, with the values that are worth
// trying, the best guess first. tune.h tries settings and puts the chosen one in place of the lines: what is judged,
// stored and exported has no knobs. This file reads the lines and writes the constants. Pure; any thread.
//
// In Python kinds each list of triton.Config is a knob too (config_lists.h): `configs`, `configs_2`, ..., behind those of
// lines.
//
// A line that begins with `// knob` and has no colon behind a first word is prose.

#include <cstdint>
#include <string>
#include <vector>

#include "env/outcome.h"
#include "env/problem/problem.h"

namespace kevin {

inline constexpr size_t kMaxKnobs = 8;                // of one text
inline constexpr size_t kMaxKnobValues = 32;          // of one knob
inline constexpr int64_t kMaxKnobValue = 2147483647;  // and its negative: the constants are of type int

struct DeclaredKnob {
  std::string name;
  std::vector<int64_t> values;  // different ones
  int line = 0;                 // of the text, from 1; 0: a list of triton.Config
};

struct ReadKnobsResult {
  std::vector<DeclaredKnob> knobs;  // in the order of the text; none if there is an error
  std::string error;                // the first one, as a compiler's message: "candidate.cpp:3:9: error: ..."
};

// `symbols`: the constants in scope, whose names are taken.
ReadKnobsResult ReadKnobs(const std::string& source, const std::string& kind, const Symbols& symbols);

// False: certainly none. Cheap.
bool MayHaveKnobs(const std::string& source, const std::string& kind);

// How many settings there are.
int64_t CountSettings(const std::vector<DeclaredKnob>& knobs);
// The first value of each.
KnobSetting FirstSetting(const std::vector<DeclaredKnob>& knobs);

// The text with a constant in place of each knob's line; lines keep their numbers. `setting` has a value for every knob.
std::string WithSetting(const std::string& source, const std::string& kind,
                        const std::vector<DeclaredKnob>& knobs, const KnobSetting& setting);

}  // namespace kevin
