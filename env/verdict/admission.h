#pragma once
// Admission: a problem counts only if incorrect answers fail on it. What is put through its check, and with
// which result. The answers themselves are made on the CPU (env/cpu/admission.cc) and on the GPU
// (env/gpu/judge/gpu_admission.cc) from the same rules, which stand here.
//
// Must fail, the decoys: zeros, a constant, a copy of an input, the output for other inputs, for other inputs
// and these weights, for other weights, for other values of one input, one incorrect element, half the rows, an
// input-output left as it was,
// and what is computed more coarsely than the precision of the problem asks:
//
//     fp32   inputs rounded to fp16, to bf16
//     fp16   inputs rounded to bf16, to fp8; outputs rounded to bf16
//     bf16   inputs rounded to fp8 of either kind; outputs rounded to fp8
//
// (fp8 e4m3 and e5m2 by their digits alone, as if scaled to fit.) In fp32 further, of problems with several
// contractions (convolutions, products of matrices): TF32 and bf16 in the first one, the last, every other and
// all of them. A decoy of these that passes is counted neither way where the flag `coarse-layers` of the file
// names it. Must pass: the result of the reference when
// it computes the same once more, and in fp32 when it does so by other algorithms. Bounds that reject those
// would reject correct kernels. What cannot exist for a problem (no input of the output's shape to copy) is
// left out.

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/problem/precision.h"
#include "env/problem/problem.h"

namespace kevin {

struct DecoyResult {
  std::string name;        // "zeros", "inputs rounded to fp16", "the reference once more", ...
  bool must_pass = false;  // a correct answer: one of the reference's own
  bool passed = false;     // the check accepted it
  std::string reason;      // why it was rejected; of a correct one that passed: how near to its bound it came
  // False where its values, before they were rounded to outputs of 16 bits, lie within that one rounding of
  // the truth everywhere: a check that accepts the best answer must accept it too. A loss that averages a
  // million elements is such a case. Counts neither way.
  bool distinguishable = true;
  bool is_marked = false;  // it passed, and the flag `coarse-layers` names it
};

// "worst error 1.2e-07 of 4e-07 allowed"
std::string WorstErrorText(double max_error, double error_bound);

// As evaluators answer it; throws nlohmann::json::exception.
nlohmann::json DecoysToJson(const std::vector<DecoyResult>& decoys);
std::vector<DecoyResult> DecoysFromJson(const nlohmann::json& json);

// A narrower type by the mantissa bits that it lacks against float32, and by its range.
struct NarrowType {
  const char* name;
  int dropped;
  float largest;
};
// To these the inputs are rounded; to the first one the outputs of 16 bits as well.
std::array<NarrowType, 2> NarrowerThan(Precision precision);

// A kernel that multiplies in a narrower type in some of its contractions.
struct CoarseDecoy {
  std::string name;  // "TF32 in the first contraction"
  int dropped = 0;   // mantissa bits less than float32's
  std::function<bool(size_t number)> is_coarse;
};
// None for fewer than two contractions, and in 16 bits. `tf32`: the reference itself may use TF32, so that only
// bf16 is incorrect.
std::vector<CoarseDecoy> CoarseDecoys(const Problem& problem, size_t contractions, bool tf32);
// Does the flag `coarse-layers` name this decoy as one that the check cannot reject?
bool IsMarked(const Problem& problem, const std::string& decoy);

// A kernel that ignores some of the tensors: `is_other` says of which inputs (parameters included) it uses
// the values of another call.
struct BlindDecoy {
  std::string name;
  std::function<bool(size_t input)> is_other;
};
// For each input, and for inputs and weights as a whole: does the output depend on it? Stored tensors have no
// other values. Where the file says that one of several inputs does not matter, only for all of them
// together.
std::vector<BlindDecoy> BlindDecoys(const SizedProblem& sized);

// Everything correct but one input-output, which has its values from before the call.
struct LeftInOut {
  std::string name;  // "`keys` left as it was"
  size_t input = 0, output = 0;
};
std::vector<LeftInOut> LeftInOuts(const SizedProblem& sized);

// The first input that could be taken for output 0, by type and size.
std::optional<size_t> InputLikeOutput(const SizedProblem& sized);

// The decoy "one wrong element" differs from the reference in one element of output 0, by
// OffsetOfWrongElement. `rms` is that of all elements or of the element's row, whichever is larger: the bound
// of an error follows the row. `scale` gives the problem's own scale there, 0 where it has none; it is called
// for outputs of 16 bits alone.
struct WrongElement {
  int64_t index = 0;
  int64_t row_begin = 0, row_length = 1;
};
WrongElement PlaceOfWrongElement(const ConcreteTensor& output);
double OffsetOfWrongElement(DType dtype, double correct, double rms, const std::function<double()>& scale);

}  // namespace kevin
