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
#include <vector>

#include "tools/export/records.h"

namespace kevin {

// Writes into `folder`, which must not exist or be empty. Episodes at problems without a level and a number
// ("mine/relu") are skipped.
RecordsWritten WriteKernelBench(const RecordsRequest& request, const std::string& folder);

// The file names of a level's problems in KernelBench, problem 1 first: "1_Square_matrix_multiplication_.py".
// Its scripts look baselines up by them. None for other levels.
std::vector<std::string> KernelBenchFiles(int level);

}  // namespace kevin
