#pragma once
// The code in front of every generated kernel. C++ (prelude.cc): a vector type, loads and stores of whole and
// partial vectors, functions of one variable with their polynomials. CUDA (cuda_prelude.cc): packs of 1, 2, 4
// or 8 numbers that are loaded and stored together, reductions over a warp, a block or a cluster,
// asynchronous copies, and functions that CUDA lacks. Only the parts that a kernel uses are written. All
// functions are pure.

#include <cstdint>
#include <string>
#include <vector>

#include "policies/search/family.h"

namespace kevin::search {

// C++. `body`: the kernel's text. `lanes`: "full" (the widest registers of the compiling machine) or "half".
// `element`: the tensors' type; "_Float16" and "bf16" are widened on loading and rounded on storing, without
// streaming stores.
std::string WithPrelude(const std::string& body, const std::string& lanes,
                        const std::string& element = "float");

struct PreludePart {
  const char* trigger;  // the part is written when the kernel or a later part contains a word with this start
  const char* text;
};
// The parts that `text` needs, then `text`. Later parts may use earlier ones.
std::string WithParts(std::string text, const std::vector<PreludePart>& parts);

// CUDA. `element`: the tensors' type; 16-bit ones are widened on loading and rounded on storing, and allow
// packs of 8.
std::string WithCudaPrelude(const std::string& body, const std::string& element = "float");
// CUDA: `struct Extreme` and its functions, for argmax, or for argmin when not `is_max`.
std::string ExtremePrelude(bool is_max);

// The widest pack that divides `count`: 4, 2 or 1.
int PackWidth(int64_t count);
// "precise", then "fast" when `term` has an operation with a faster, less exact function.
Knob MathKnob(const TermPtr& term);

}  // namespace kevin::search
