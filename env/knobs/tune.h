#pragma once
// Chooses a setting of a candidate's knobs (knobs.h) by short looks at several of them, and gives the text that has it.
//
// Each setting is compiled, verified by one call and timed by a few (EvaluateOptions::screen); several are compiled side
// by side. A setting that fails or is incorrect drops out, one that is clearly slower than the fastest is timed for less
// long. The fastest is chosen; where none is correct, the first values. The caller judges the text that comes out by all
// rules: a trial is no verdict, enters no estimate, and looks to the candidate like any other call, so that a text which
// behaves otherwise in a trial only makes its own choice worse.
//
// Nothing is run for a text without knobs, with one setting, or where fewer than two settings may be tried.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

struct TuneOptions {
  int settings = 0;  // to try, the first values among them; below 2: the first values are taken
  uint64_t seed = 0;
  EvaluateOptions evaluate;  // workload, on_phase ("tune 3 of 8") and stop are used
  // Called in the order of choosing, on the caller's thread; KnobTrial::chosen is not known yet. May be empty.
  std::function<void(const KnobTrial&)> on_trial;
};

// How many settings are tried unless the user says otherwise: 24 on a GPU, 8 on a CPU. 1000 at most.
int DefaultSettings(const std::string& kind);
inline constexpr int kMaxSettings = 1000;

struct Tuned {
  Candidate candidate;            // as given where there is an error or no knob; else without knobs
  std::string error;              // of a declaration, as a compiler's message; empty: none
  std::vector<KnobTrial> trials;  // in the order of choosing, one of them chosen; empty: no knobs
  double seconds = 0;
};

// Throws Error for what the candidate did not cause, after a second try.
Tuned Tune(const Problem& problem, const Candidate& candidate, Environment& environment,
           const TuneOptions& options);

}  // namespace kevin
