#pragma once
// Turns of many episodes as data: lines of JSON for training, and KernelBench's folder of a run.

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "agent/events.h"
#include "trajectories/store.h"

namespace kevin {

// What `--select` says: the best kernel of each problem, all right ones, or every turn.
enum class Selection { kBest, kCorrect, kAll };

struct RecordsRequest {
  std::vector<std::string> databases, runs;  // runs: ids or unique beginnings; empty: all
  std::string problems;                      // only ids that begin so
  Scheme scheme;                             // for returns and advantages
  Selection selection = Selection::kAll;
  double min_speedup = 0;  // of right kernels that are selected
  int pairs = 1;           // preference: at most so many of one prompt
};

struct RecordsWritten {
  int64_t lines = 0, skipped = 0;
  std::string remark;  // about what was skipped
};

using WriteLine = std::function<void(const Json& line)>;

// One object a turn: prompt, completion, token ids, log-probabilities, verdict, reward, return, advantage.
RecordsWritten WriteJsonLines(const RecordsRequest& request, const WriteLine& write);
// {"messages": [..., {"role": "assistant", "content": ...}], ...}
RecordsWritten WriteSft(const RecordsRequest& request, const WriteLine& write);
// {"prompt": [...], "chosen": [...], "rejected": [...], ...}: two answers to the very same prompt whose
// scores differ by more than twice their measurement error.
RecordsWritten WritePreferences(const RecordsRequest& request, const WriteLine& write);

}  // namespace kevin
