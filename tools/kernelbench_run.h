#pragma once
// `kevin bench --kernelbench PATH`: judges what others published (tools/kernelbench_candidates.h) and keeps the results
// (tools/kernelbench_results.h). A repeated call continues: a candidate with a stored verdict
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
  // --most: judge so many that have no verdict yet, with judge_as_kernelbench none of KernelBench; 0: all
  int most = 0;
  int parallel = 1;  // --parallel: candidates at once; one is timed while others are built. 0: by the machine
  EvaluateOptions evaluate;
  DeviceOptions device;
  bool json = false;
  std::string compat;  // --compat: "kernelbench", or empty
  std::string
      compat_from;  // --compat-from: a checkout of KernelBench; empty: Kevin's Python form of the problems
  // KernelBench's verdict on a candidate of a problem under a workload; empty: it is not asked for. `own_file`: the text of
  // KernelBench's file of the problem; empty: Kevin's Python form. With `parallel` > 1 it is called from several threads.
  std::function<KernelBenchVerdict(const PublishedCandidate&, const Problem&, const Workload&,
                                   const std::string& own_file)>
      judge_as_kernelbench;
};

struct KernelBenchTally {
  int candidates = 0, judged = 0, stored = 0;  // stored: by an earlier call
  int compiled = 0, correct = 0, faster = 0;   // of all with a verdict; faster: certainly faster than eager
  std::map<std::string, int> outcomes;
  std::vector<std::string> left_out;  // "NAME: reason"
  std::vector<std::string> sizes;     // a sentence for each problem that is judged at another size than asked
  // With judge_as_kernelbench: one of each for a candidate with both verdicts.
  std::vector<CompatRow> compared;
  std::vector<KernelBenchVerdict> of_kernelbench;
  std::vector<std::string> not_compared;  // "NAME: reason"
};

using PublishedProblemFinder = std::function<Problem(const std::string& id)>;

// Judges all, in the order of their ends where `parallel` > 1. `find` throws Error(kBadRequest) for an unknown problem. A
// candidate whose problem has no size of the name that was asked for is left out; kFirstShapes (env/problem/model_facts.h)
// stands for the size that has those shapes. `on_result` gets the event of `kevin bench --json`, with `name`, `sample` and
// `stored`; with judge_as_kernelbench also `kernelbench`, `disagreement`, `not_compared`. Ends early when `stop` is set;
// throws Error for broken infrastructure; what is judged is kept. Where KernelBench's side fails, the candidate is not
// compared.
KernelBenchTally JudgePublished(const PublishedCandidates& published, const PublishedProblemFinder& find,
                                Environment& environment, KernelBenchResults& results,
                                const KernelBenchRunOptions& options,
                                const std::function<void(const nlohmann::ordered_json&)>& on_result,
                                const std::atomic<bool>* stop);

// The command. Returns its exit code.
int RunKernelBench(const KernelBenchRunOptions& options);

}  // namespace kevin
