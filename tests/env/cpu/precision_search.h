#pragma once
// Candidates in 16 bits: kernels in files, and problems that the search policy writes.

#include <string>
#include <vector>

#include "env/problem/precision.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/folders.h"
#include "tests/support/search_text.h"

namespace kevin {

// The kernels of precision/, correct and incorrect, for both 16-bit types. Each file is written for fp16.

struct PrecisionKernel {
  const char *file, *problem;  // the file's name without its ending
  bool is_correct;
};

// Of one problem together: an evaluator keeps one ready.
inline constexpr PrecisionKernel kPrecisionKernels[] = {
    {"relu", "level1/19", true},          {"matmul", "level1/1", true},
    {"matmul_of_fp8", "level1/1", false}, {"matmul_in_16_bits", "level1/1", false},
    {"softmax", "level1/23", true},       {"layer_norm", "level1/40", true}};

inline Problem ProblemIn(const std::string& id, Precision precision) {
  return InPrecision(ListedProblem(id), precision);
}

// `ending`: "cpp" or "cu".
inline std::string PrecisionKernelText(const std::string& file, const std::string& ending,
                                       Precision precision) {
  std::string text = TextOf(SourceFolder() / "tests/env/precision" / (file + "." + ending));
  if (precision == Precision::kFp16) return text;
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("_Float16", "bf16");
  replace("cuda_fp16.h", "cuda_bf16.h");
  replace("__half2float", "__bfloat162float");
  replace("__float2half", "__float2bfloat16");
  replace("__half", "__nv_bfloat16");
  return text;
}

// Odd functions, two inputs, a scalar; a product, softmax, a norm.
inline constexpr const char* kSearchedProblems[] = {"level1/19", "level1/26", "level1/12", "level1/5",
                                                    "level1/1",  "level1/23", "level1/40"};

}  // namespace kevin
