#pragma once
// `kevin bench --kernelbench PATH`: judges what others published (tools/kernelbench_candidates.h), one candidate after the
// other, and keeps the results (tools/kernelbench_results.h). A repeated call continues: a candidate with a stored verdict
// under the same key is not judged again.

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "env/environment.h"
#include "tools/device_options.h"
#include "tools/kernelbench_candidates.h"
#include "tools/kernelbench_compat.h"
#include "tools/kernelbench_results.h"

namespace kevin {

struct KernelBenchRunOptions {
  std::string path;  // --kernelbench
  // --results; empty: PATH if it is a folder (PATH/kevin where KernelBench's own results are in it), else PATH-results
  std::string results;
  std::string size;  // empty: the environment's default
  int most = 0;      // --most: judge so many that have no verdict yet; 0: all
  EvaluateOptions evaluate;
  DeviceOptions device;
  bool json = false;
  std::string compat;  // --compat: "kernelbench", or empty
  std::string
      compat_from;  // --compat-from: a checkout of KernelBench; empty: Kevin's Python form of the problems
  // KernelBench's verdict on a candidate of a problem under a workload; empty: it is not asked for.
  std::function<KernelBenchVerdict(const PublishedCandidate&, const Problem&, const Workload&)>
      judge_as_kernelbench;
};

struct KernelBenchTally {
  int candidates = 0, judged = 0, stored = 0;  // stored: by an earlier call
  int compiled = 0, correct = 0, faster = 0;   // of all with a verdict; faster: certainly faster than eager
  std::map<std::string, int> outcomes;
  std::vector<std::string> left_out;  // "NAME: reason"
  // With judge_as_kernelbench: one of each for a candidate with a verdict.
  std::vector<CompatRow> compared;
  std::vector<KernelBenchVerdict> of_kernelbench;
};

using PublishedProblemFinder = std::function<Problem(const std::string& id)>;

// Judges all. `find` throws Error(kBadRequest) for an unknown problem. Where a problem has no size `v0`, its shapes have
// not changed since, and `full` is used. `on_result` gets the event of `kevin bench --json`, with `name`, `sample` and
// `stored`. Ends early when `stop` is set; throws Error for broken infrastructure; what is judged is kept.
KernelBenchTally JudgePublished(const PublishedCandidates& published, const PublishedProblemFinder& find,
                                Environment& environment, KernelBenchResults& results,
                                const KernelBenchRunOptions& options,
                                const std::function<void(const nlohmann::ordered_json&)>& on_result,
                                const std::atomic<bool>* stop);

// The command. Returns its exit code.
int RunKernelBench(const KernelBenchRunOptions& options);

}  // namespace kevin
