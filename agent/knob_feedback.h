#pragma once
// The trials of a candidate's knobs (env/knobs/) as text, for policies and for users. Pure; any thread.

#include <string>
#include <vector>

#include "env/outcome.h"

namespace kevin {

std::string SettingLine(const KnobSetting& setting);  // "TILE = 128, UNROLL = 4"

// What a policy is told beside the result: the setting that was chosen, how many were tried, what differences are noise, the
// times of the fastest and of the slowest settings, the effect of each knob alone, where pairs of settings show it (few
// combinations are tried), and a hint where settings of one text are incorrect beside correct ones. `is_correct`: the chosen
// one, in the full judgement, which took `measured_us` a call (0: unknown); without times where it is not. `error_ratio`: of the
// error to what is allowed, where that judgement found it incorrect; 0: unknown. Without a line end at the end; empty for no
// trials.
std::string KnobNotes(const std::vector<KnobTrial>& trials, bool is_correct = true, double measured_us = 0,
                      double error_ratio = 0);

// One row a trial: setting, outcome, time, its share of the chosen one's, and what is to be said of it; a header first.
std::vector<std::vector<std::string>> TrialRows(const std::vector<KnobTrial>& trials);

}  // namespace kevin
