#pragma once
// KernelBench's folder of a run, so that its own analysis scripts read Kevin's episodes: one sample an
// episode, its best kernel.
//
//   FOLDER/level_1_problem_19_sample_0_kernel.py    class ModelNew
//   FOLDER/eval_results.json      by problem: compiled, correctness, runtime in milliseconds
//   FOLDER/baseline_eager.json    what eager took, in the form of KernelBench's timing files
//
// Its script, from a checkout of it, given the folder that FOLDER is in:
//
//   python scripts/benchmark_eval_analysis.py run_name=FOLDER level=1 hardware=here baseline=eager
//       eval_results_dir=.. baseline_file=../FOLDER/baseline_eager.json
//
// Several levels get a folder each, FOLDER_level1, ..., because its scripts analyse one level at a time.

#include <string>

#include "tools/export/records.h"

namespace kevin {

// Writes into `folder`, which must not exist or be empty. Episodes at problems without a level and a number
// ("mine/relu") are skipped.
RecordsWritten WriteKernelBench(const RecordsRequest& request, const std::string& folder);

}  // namespace kevin
