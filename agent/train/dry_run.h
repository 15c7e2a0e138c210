#pragma once
// What a run over records would learn from, without a trainer: `kevin train --dry-run`. Texts of records are in
// events and texts as they are stored, for Print (agent/terminal.h) to filter. Pure but for PrintDryRun.

#include <string>
#include <vector>

#include "agent/json.h"
#include "agent/train/batches.h"

namespace kevin {

// The event `dry_run`: algorithm, units, dropped, turns, batch, steps_per_epoch, remarks; `problems`, each with
// episodes, turns, correct_turns, best_speedup, and the range of its advantages; `advantages`, the histogram over
// all turns of the units: bins {from, to, turns}, of which the outer ones are open (null). Advantages are null for
// imitation and preferences, whose losses have none.
Json DryRunEvent(const Algorithm& algorithm, const LearnTurns& turns, const Units& units,
                 const std::vector<std::string>& remarks);
std::string DryRunText(const Json& event);

// The event `sample` for each sample of a batch: index, problem, episode, turn, model, outcome, speedup, score, return,
// advantage, temperature, masked, prompt_tokens, reply_tokens, prompt, reply. Prompt and reply are the decoded tokens;
// without `decode`, prompt is null and reply the recorded text.
std::vector<Json> SampleEvents(const LearnBatch& batch, const ModelText& text);
// With the end of the prompt and the beginning of the reply, `shown_bytes` of each at most.
std::string SampleText(const Json& event, size_t shown_bytes);

// Prints the events to standard output: as JSON lines, or as text below `heading`.
void PrintDryRun(const std::string& heading, const Json& event, const std::vector<Json>& samples, bool json);

}  // namespace kevin
