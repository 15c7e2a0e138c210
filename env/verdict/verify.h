#pragma once
// START HERE for verdicts. Correct or incorrect: the check of each element. Pure arithmetic on plain memory.
//
// For each element, with truth t (fp64), reference r (eager) and answer y:
//
//     |y - t| <= max(4 |r - t|,  8 eps sqrt(K) s)
//
//     eps   2^-23
//     K     the problem's `reduction`
//     s     the problem's `scale` where it gives one, else max(|t|, RMS of t along the row)
//
// A row is the last dimension, or the whole tensor when that has one element. In the same way the RMS error of
// the row must be at most 4 times that of the reference, with the same floor. NaN and Inf must be where the
// reference has them. There is no tensor-wide maximum: one incorrect element makes the answer incorrect. s is
// not the sum of absolute contributions: together with sqrt(K) that lets inputs rounded to fp16 pass from
// K = 1024 on (see `kevin problems --admit`); the root of the sum of squares, which the RMS of the row
// estimates, does not.
//
// Outputs of 16 bits: the arithmetic is held to float32 all the same. Two roundings to the type are allowed
// for the value and two for the sum (a kernel may round what it keeps between a few steps):
//
//     |y - t| <= max(4 |r - t|,  8 eps sqrt(K) s + 2 u (|t| + s) + 2 step)
//
//     u     2^-11 (fp16), 2^-8 (bf16)
//     step  the smallest difference of the type (fp16: 2^-24; below 6e-5 it has fewer digits)
//
// sqrt(K) does not multiply u: this rejects sums kept in 16 bits. Where eager rounds between its steps and what follows
// enlarges these errors (attention with large scores), the error of one element of eager may be small by chance, and that of
// a kernel which rounds at the same places is not. Problems of this kind say so: with their `error_spread` e the bound of an
// element is never less than
//
//     e RMS of (r - t) along the row, in rows of at least 32 elements
//
// The largest of 10^8 normal errors is 5.7 times their RMS, and that of a correct kernel was up to 1.4 times eager's: e is 8.
// Where t is finite and r is not, because
// eager left the range of the type on the way, the value t is correct too; where t lies outside that range,
// infinity is.

#include <cstdint>
#include <span>
#include <string>

#include "env/problem/problem.h"

namespace kevin {

inline constexpr int kToleranceVersion = 1;  // part of the key of an evaluation; bump with every change here

struct CheckResult {
  bool ok = true;
  std::string message;         // for the user and the model: where, both values, the bound
  double max_error = 0;        // at the element nearest to or furthest over its bound ...
  double error_bound = 0;      // ... and its bound
  double reference_error = 0;  // largest |r - t| / s seen, for CheckAgainstReference
};

// Is the error of `a` nearer to its bound (or further over it) than that of `b`? For all that has max_error
// and error_bound: CheckResult, Measured.
template <typename A, typename B>
bool IsNearerItsBound(const A& a, const B& b) {
  return a.max_error * b.error_bound > b.max_error * a.error_bound;
}

struct CheckShape {
  std::string name;  // of the output, for messages
  std::span<const int64_t> shape;
  int64_t reduction = 1;
  DType dtype = DType::kF32;  // in which the answer is kept; the values themselves come widened to float
  double error_spread = 0;    // of the problem
};

// The message on incorrect elements, as CPU and GPU write it: the first one with both values once, how many there are, the
// pattern, the largest error (in units of its bound) with the bound. The one element of a scalar has no index.
struct FirstIncorrect {
  std::string index;  // "[3, 5]"
  double answer = 0, target = 0;
  bool is_unwritten = false;
};
std::string IncorrectText(const std::string& name, const FirstIncorrect& first, int64_t wrong,
                          int64_t elements, const std::string& pattern, double error, double bound);

// For an answer with incorrect elements: where they lie and what their values have in common (env/verdict/pattern.h).
// `margin`, `truth` and `scale` as below; without a truth the reference is the target. `origin`: of a part of an output,
// the index of its first slice along dimension 0; `is_part`: there is more of the output. `threads`: that walk over all
// elements once more; `candidate_threads`: 0 on a GPU.
std::string DescribeIncorrect(const CheckShape& shape, std::span<const float> answer,
                              std::span<const float> reference, std::span<const double> truth,
                              std::span<const double> scale, double margin, int threads, int64_t origin = 0,
                              bool is_part = false, int candidate_threads = 0);

// `scale` is empty or has one value an element. All spans have the shape's number of elements.
CheckResult CheckAgainstTruth(const CheckShape& shape, std::span<const float> answer,
                              std::span<const float> reference, std::span<const double> truth,
                              std::span<const double> scale, int threads);

// The part of the bound that does not depend on the error of the reference, by its three terms.
struct ErrorFloor {
  double of_scale = 0, of_value = 0, absolute = 0;
  double At(double value, double scale) const { return of_scale * scale + of_value * value + absolute; }
};
ErrorFloor FloorOf(int64_t reduction, DType dtype);

// What the RMS of the reference's error along a row of so many elements is multiplied with, where there is a truth.
double SpreadFactor(double error_spread, DType dtype, int64_t row);

// For outputs of timed calls, which have no truth: |r - t| is left out, `margin` s is added, and s comes from
// r. `margin` is 10 times the largest reference_error that CheckAgainstTruth saw for this problem.
CheckResult CheckAgainstReference(const CheckShape& shape, std::span<const float> answer,
                                  std::span<const float> reference, std::span<const double> scale,
                                  double margin, int threads);

// Index outputs: correct if they point at an extreme value of `values` along `dim` (of `values_shape`).
CheckResult CheckExtremeIndex(const std::string& name, std::span<const int64_t> answer,
                              std::span<const float> values, std::span<const int64_t> values_shape, int dim,
                              bool maximum);

}  // namespace kevin
