#pragma once
// A problem's reference as plain C++ or CUDA loops, so that a kernel can be checked where there is no torch.
// Made from the same reading of the reference as the search policy's kernels; slow and simple.
//
// The code is a set of templates over the number type, evaluated in double for the truth and in float for
// what an ordinary fp32 evaluation gives. A step's results lie in a buffer of their own:
//
//   template <class T> HD T Term3(const Inputs& in, const Buffers<T>& b, long i, long r)
//                                       // term r of result i of step 3, a sum over r
//   template <class T> HD T Result(const Inputs& in, const Buffers<T>& b, long i)    // element i of the
//   output

#include <cstdint>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

struct ReferenceStep {
  std::string kind;                // "sum", "mean", "max", "min", "argmax", "argmin", "cumsum", "cumprod"
  int64_t results = 0, terms = 1;  // a scan has as many results as its input has elements
  int64_t inner = 1;               // scans: elements between neighbours along the scanned dimension
};

struct PlainReference {
  std::string code;                  // the templates; needs HD, Inputs and Buffers<T>
  std::vector<ReferenceStep> steps;  // in order; step k is evaluated by Term<k>
  bool has_scale = false;            // ScaleResult and ScaleTerm<k> for the steps in scale_steps
  std::vector<ReferenceStep> scale_steps;
  std::string why_not;  // not empty: this reference cannot be written so, and why
};

PlainReference WritePlainReference(const SizedProblem& problem);

}  // namespace kevin
