#pragma once
// START HERE to add a family: copy family_scan.cc (C++) or cuda_scan.cc, the shortest, and name the new
// function in family.cc's list for its kind; forms.h has the recognisers that both kinds share. A family
// recognises some terms and says which schedules it can write for them: knobs with a few values each, and a
// function from one setting of the knobs to the kernel's text.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "policies/search/term.h"

namespace kevin::search {

using Setting = std::map<std::string, std::string>;  // knob -> value

// The most promising knob and, in it, the most promising value come first; together the first values are the
// schedule of the first turn. `values` are words without spaces.
struct Knob {
  std::string name;
  std::vector<std::string> values;
};

struct Kernel {
  std::string family;
  std::string summary;  // what the kernel does in a few words, for the reply's prose
  std::vector<Knob> knobs;
  std::function<std::string(const Setting&)> write;  // the text without its first (settings) line
};

// What a family sees. `roots` are the same computation with and without one-pass moments (LowerOptions).
struct Computation {
  TermPtr one_pass, two_pass;
  const Task* task = nullptr;
};

struct Family {
  std::string name;    // "elementwise"
  std::string covers;  // "relu, gelu, ...", for WhyNot
  std::optional<Kernel> (*recognise)(const Computation&);
  bool writes_16_bits = false;  // tensors of fp16 and bf16 too
};

// What is written for a kind of candidate, in the order of asking; empty for a kind that nothing writes.
const std::vector<Family>& Families(const std::string& kind);

// Helpers for writers.
// The task's floating type as its kind spells it: "float", "_Float16", "__nv_bfloat16", ...
std::string ElementOf(const Task& task);
// `extern "C" void launch(const float* in0, ..., float* out0)`; without extern "C" for kind cuda.
std::string LaunchHead(const Task& task);
// All tensors as a CUDA kernel takes them (`const float* __restrict__ in0, ...`), and as launch passes them.
std::string KernelParameters(const Task& task);
std::string KernelArguments(const Task& task);
std::string Name(int input);  // "in0"
int Integer(const Setting& setting, const std::string& knob);
bool Is(const Setting& setting, const std::string& knob, const char* value);
// Replaces each {name}; text in braces that names nothing stays.
std::string Fill(std::string text, const std::map<std::string, std::string>& values);

// A full-size leaf reads the tensor in order; nothing is broadcast, transposed or left out.
bool IsFull(const Term& leaf, const std::vector<Dim>& shape);
// How one operand moves over dims [begin, end) of `shape`: element by element, not at all, or otherwise.
enum class Motion { kInStep, kConstant, kOther };
Motion MotionOver(const Term& leaf, const std::vector<Dim>& shape, size_t begin, size_t end);

// A tensor reduced over neighbouring dims, as outer x terms x inner elements.
struct ReducedLayout {
  size_t begin = 0, end = 0;  // the reduced dims
  int64_t outer = 1, terms = 1, inner = 1;
  std::string outer_text, terms_text, inner_text;
};
// Throws Unsupported when `dims` are not neighbours.
ReducedLayout LayoutOf(const std::vector<Dim>& shape, const std::vector<int>& dims);

// How sum, mean, max and min are computed: `start` combined with every term. `combine` has $0 and $1.
struct ReductionForm {
  const char *start, *combine;
};
ReductionForm FormOf(const std::string& op);
std::string Combine(const ReductionForm& form, const std::string& a, const std::string& b);

// Every leaf of `term`, equal ones once.
std::vector<TermPtr> Leaves(const TermPtr& term);
// Every reduction in `term`, inner ones first, equal ones once.
std::vector<TermPtr> Reductions(const TermPtr& term);
bool Contains(const TermPtr& term, const std::function<bool(const Term&)>& is_wanted);

}  // namespace kevin::search
